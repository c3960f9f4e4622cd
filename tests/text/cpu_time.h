// Time that a test took on its thread, whatever else the machine does.
#pragma once

#include <ctime>

namespace polysil {

// What instrumented builds may take longer.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr double kSlowdown = 15;
#else
inline constexpr double kSlowdown = 1;
#endif

inline double CpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace polysil
