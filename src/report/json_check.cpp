#include "report/report.hpp"

namespace moecast {

std::string to_string(Severity severity) {
  switch (severity) {
    case Severity::error:
      return "error";
    case Severity::warning:
      return "warning";
    case Severity::info:
      break;
  }
  return "info";
}

Json check_json(const std::vector<Finding>& findings) {
  Json list = Json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"rule", finding.rule},
                    {"severity", to_string(finding.severity)},
                    {"keys", finding.keys},
                    {"message", finding.message},
                    {"fix", finding.fix},
                    {"applies", finding.applies}});
    if (finding.runtime) list.back()["phase"] = "runtime";
  }
  return {{"schema", "moecast/check@1"}, {"findings", list}};
}

}  // namespace moecast
