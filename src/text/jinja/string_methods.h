// The method tables that FindMethod() joins, and what filters and tests share with them.
#pragma once

#include <span>
#include <string_view>

#include "text/jinja/functions.h"

namespace polysil::jinja {

std::span<const Method> StringMethods();  // sorted by name
std::span<const Method> BytesMethods();

// str.islower ('l'), str.isupper ('u'), str.istitle ('t').
bool HasCase(std::string_view text, char which);

}  // namespace polysil::jinja
