// How much of a bounded place one of several may take, so that whatever it sends, others find room:
// so many times what is left for all. Alone it may have three quarters, two may have three sevenths
// each. The dynamic thresholds of Choudhury and Hahne, "Dynamic Queue Length Thresholds for
// Shared-Memory Packet Switches" (1998).
#pragma once

#include <cstdint>

namespace polysil {

inline constexpr int64_t kRoomShare = 3;

// Whether one that holds `held` may have `more`, where `left` are left before that.
constexpr bool LeavesRoom(int64_t held, int64_t more, int64_t left) {
  return held + more <= kRoomShare * left;
}

}  // namespace polysil
