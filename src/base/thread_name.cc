#include "base/thread_name.h"

#include <pthread.h>

#include <algorithm>
#include <cstring>

namespace polysil {

void SetThreadName(std::string_view name) {
  char buffer[16] = {};  // the kernel's limit, with the final zero
  std::memcpy(buffer, name.data(), std::min(name.size(), sizeof(buffer) - 1));
  pthread_setname_np(pthread_self(), buffer);
}

}  // namespace polysil
