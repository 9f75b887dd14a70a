#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include <fmt/format.h>

#include "core/document.hpp"

namespace moecast {
namespace {

namespace fs = std::filesystem;

std::string write_through(const fs::path& path, std::string_view text) {
  errno = 0;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  return file ? "" : std::strerror(errno != 0 ? errno : EIO);
}

fs::path temporary_beside(const fs::path& path) {
  static std::atomic<unsigned> count{0};
  fs::path out = path;
  out += fmt::format(".{}-{}.tmp", ::getpid(), count++);
  return out;
}

std::string replace_file(const fs::path& path, std::string_view text) {
  const fs::path temporary = temporary_beside(path);
  std::error_code error, ignored;
  std::string problem = write_through(temporary, text);
  if (problem.empty()) {
    const fs::file_status old = fs::status(path, ignored);
    if (fs::is_regular_file(old)) fs::permissions(temporary, old.permissions(), ignored);
    fs::rename(temporary, path, error);
    if (error) problem = error.message();
  }
  if (!problem.empty()) fs::remove(temporary, ignored);
  return problem;
}

}  // namespace

std::string write_file_atomically(const fs::path& path, std::string_view text) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  // A device or pipe (/dev/stdout) must be written to, not replaced; a link keeps pointing where it
  // points.
  const bool special =
      fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status);
  fs::path target = fs::is_regular_file(status) ? fs::canonical(path, ignored) : path;
  if (target.empty()) target = path;
  std::string problem;
  if (fs::is_directory(status)) {
    problem = "it is a folder";
  } else {
    problem = special ? write_through(path, text) : replace_file(target, text);
  }
  return problem.empty() ? "" : fmt::format("cannot write '{}': {}", path.string(), problem);
}

fs::path data_dir() {
  if (const char* chosen = std::getenv("MOECAST_DATA"); chosen != nullptr && *chosen != '\0')
    return chosen;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    const fs::path installed =
        program.parent_path().parent_path() / MOECAST_INSTALL_DATADIR / "moecast";
    if (fs::is_directory(installed, error)) return installed;
  }
  return MOECAST_SOURCE_DIR;
}

}  // namespace moecast
