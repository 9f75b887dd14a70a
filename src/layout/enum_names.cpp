#include "layout/enum_names.hpp"

namespace moecast {

std::string to_string(Precision p) { return std::string(enum_text(p)); }
std::string to_string(Dispatcher d) { return std::string(enum_text(d)); }

}  // namespace moecast
