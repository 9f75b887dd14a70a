#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "catch.hpp"
#include "core/document.hpp"

using namespace moecast;
namespace fs = std::filesystem;

namespace {

/// A folder of this test alone, gone at its end.
class Folder {
 public:
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "moecast-core-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  fs::path operator/(const char* name) const { return path_ / name; }
  [[nodiscard]] std::size_t count() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(path_), fs::directory_iterator()));
  }

 private:
  fs::path path_;
};

std::string content(const fs::path& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

std::string first_problem(const fs::path& path) {
  const auto doc = read_document(path.string());
  return doc.ok() ? "accepted" : doc.problems().front().message;
}

}  // namespace

TEST_CASE("A file is read under the name that the user gave") {
  const Folder folder;
  REQUIRE(write_file_atomically(folder / "a.yaml", "k: 1\nk: 2\n").empty());
  const std::string name = (folder / "a.yaml").string();
  REQUIRE_FALSE(read_document(name).ok());
  CHECK(to_string(read_document(name).problems().front()).starts_with(name + ":2:1: k: duplicate"));
  REQUIRE(write_file_atomically(folder / "a.json", "\n {\"k\": 1}").empty());
  CHECK(read_document((folder / "a.json").string()).value().root.find("k")->as_int() == 1);
}

TEST_CASE("Paths that are no readable file are refused with the reason") {
  const Folder folder;
  CHECK(first_problem(folder / "none.yaml") == "cannot be read: No such file or directory");
  CHECK(first_problem(folder / ".") == "cannot be read: it is a folder, not a file");
  CHECK(first_problem("") == "cannot be read: No such file or directory");
  CHECK(first_problem(std::string(5000, 'x')) == "cannot be read: File name too long");
  CHECK(first_problem("/dev/zero") == "the file is larger than 4 MiB");
  CHECK(first_problem("/dev/null") == "the file is empty");
}

TEST_CASE("A written file is whole, replaces the old one and leaves nothing beside it") {
  const Folder folder;
  const std::string text = std::string("a\0b", 3) + std::string(100'000, 'x');
  REQUIRE(write_file_atomically(folder / "out", "old").empty());
  fs::permissions(folder / "out", fs::perms::owner_read | fs::perms::owner_write);
  REQUIRE(write_file_atomically(folder / "out", text).empty());
  CHECK(content(folder / "out") == text);
  CHECK(fs::status(folder / "out").permissions() ==
        (fs::perms::owner_read | fs::perms::owner_write));
  CHECK(folder.count() == 1);
}

TEST_CASE("A failed write says why and leaves the old file and nothing else") {
  const Folder folder;
  const std::string missing = (folder / "none").string() + "/out";
  CHECK(write_file_atomically(missing, "x") ==
        "cannot write '" + missing + "': No such file or directory");
  fs::create_directory(folder / "dir");
  CHECK(write_file_atomically(folder / "dir", "x").ends_with(": it is a folder"));
  CHECK(folder.count() == 1);
  CHECK(write_file_atomically("", "x").starts_with("cannot write ''"));
  if (::geteuid() != 0) {
    fs::permissions(folder / "dir", fs::perms::owner_read | fs::perms::owner_exec);
    CHECK(write_file_atomically(folder / "dir" / "x", "x").ends_with(": Permission denied"));
    fs::permissions(folder / "dir", fs::perms::owner_all);
  }
}

TEST_CASE("Links keep pointing and devices stay devices") {
  const Folder folder;
  REQUIRE(write_file_atomically(folder / "real", "old").empty());
  fs::create_symlink("real", folder / "link");
  REQUIRE(write_file_atomically(folder / "link", "new").empty());
  CHECK(fs::is_symlink(folder / "link"));
  CHECK(content(folder / "real") == "new");
  CHECK(write_file_atomically("/dev/null", "x").empty());
  CHECK(fs::is_character_file("/dev/null"));
  CHECK(write_file_atomically("/dev/full", "x") ==
        "cannot write '/dev/full': No space left on device");
}

TEST_CASE("The data folder is the one chosen, else the source tree of this build") {
  const char* before = std::getenv("MOECAST_DATA");
  const std::string saved = before != nullptr ? before : "";
  ::setenv("MOECAST_DATA", "/chosen", 1);
  CHECK(data_dir() == "/chosen");
  ::unsetenv("MOECAST_DATA");
  CHECK(fs::exists(data_dir() / "hwdb"));
  CHECK(fs::equivalent(data_dir(), MOECAST_SOURCE_DIR));
  if (before != nullptr) ::setenv("MOECAST_DATA", saved.c_str(), 1);
}
