// SEEDED_BUG(name): a place where a test program breaks the code on purpose, to see that scenarios
// or simulation notice. Constant false, and so nothing, in every build but that of
// test_seeded_bugs, which defines POLYSIL_SEEDED_BUGS and plants one bug a process.
//
//   if (!SEEDED_BUG(skip_a_release)) Release(block);
#pragma once

#ifdef POLYSIL_SEEDED_BUGS

#include <string_view>

namespace polysil {

// Whether this is the bug of this process.
bool IsPlanted(std::string_view name);
// Once, before anything runs.
void Plant(std::string_view name);

}  // namespace polysil

#define SEEDED_BUG(name) ::polysil::IsPlanted(#name)

#else

#define SEEDED_BUG(name) false

#endif
