#pragma once
/// A knob in a search request: part of the base, or an axis with one value.
#include <string>

#include "moecast/search.hpp"

namespace moecast {

/// key=value as --set takes it. Problems name `option` as their file.
Diagnostics set_knob(SearchRequest& request, const std::string& key, const std::string& value,
                     const std::string& option);

}  // namespace moecast
