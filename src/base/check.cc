#include "polysil/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace polysil {

void CheckFailed(const char* file, int line, const char* condition, const std::string& message) {
  std::fprintf(stderr, "%s:%d: broken invariant: %s %s\n", file, line, condition, message.c_str());
  std::abort();
}

}  // namespace polysil
