#pragma once
/// What ships with the tool, as rows: one source for the JSON, the text table and the Markdown
/// page.
#include <string>
#include <vector>

#include "moecast/result.hpp"
#include "report/report.hpp"

namespace moecast {

struct ListColumn {
  std::string title;
  std::string key;  ///< of the row
  bool number = false;
  std::size_t width = 50;  ///< longer text is cut
};

struct Listing {
  std::string topic{};
  std::vector<ListColumn> columns{};  ///< of the text table
  Json rows = Json::array();
  Diagnostics problems{};  ///< shipped files that cannot be read
};

std::vector<std::string> list_topics();
/// `topic` is one of list_topics().
Listing make_listing(const std::string& topic);

Json listing_json(const Listing& listing);
std::string listing_text(const Listing& listing, const Style& style);
/// docs/rules.md and docs/knobs.md; empty for the other topics.
std::string topic_markdown(const std::string& topic);

}  // namespace moecast
