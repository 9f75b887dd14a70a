#pragma once
/// A sweep as text, JSON and CSV.
#include <string>

#include <nlohmann/json.hpp>

#include "moecast/whatif.hpp"
#include "report/style.hpp"

namespace moecast {

std::string whatif_text(const WhatIfRequest& request, const WhatIfResult& result,
                        const Style& style);
nlohmann::ordered_json whatif_json(const WhatIfRequest& request, const WhatIfResult& result);
std::string whatif_csv(const WhatIfRequest& request, const WhatIfResult& result);

}  // namespace moecast
