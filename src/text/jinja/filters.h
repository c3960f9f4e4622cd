// The filter tables that FindFilter() joins.
#pragma once

#include <span>

#include "text/jinja/functions.h"

namespace polysil::jinja {

std::span<const Filter> TextFilters();
std::span<const Filter> NumberFilters();
std::span<const Filter> SequenceFilters();
std::span<const Filter> SelectionFilters();

}  // namespace polysil::jinja
