// ServiceWeights: what a token counts in a tenant's account, in thousandths. Fair is between
// tenants what these say.
#pragma once

#include <cstdint>

namespace polysil {

struct ServiceWeights {
  int64_t prefill = 1000;  // of a prompt, computed
  int64_t decode = 2000;   // of an output
  int64_t cached = 100;    // of a prompt, found in the prefix cache
};

}  // namespace polysil
