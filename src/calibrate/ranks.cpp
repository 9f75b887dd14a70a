#include "calibrate/ranks.hpp"

#include <charconv>
#include <chrono>
#include <cstring>
#include <thread>

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

namespace moecast {
namespace {

/// Names in the order of trust: torchrun's, Open MPI's, Slurm's.
struct Variables {
  const char *rank, *processes, *local_rank, *local_processes;
};
constexpr Variables kLaunchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"},
};
constexpr int kConnectTries = 240;  ///< a quarter of a second each

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] bool is_open() const { return fd_ >= 0; }

 private:
  int fd_;
};

Diagnostic network_problem(const ProcessPlace& place, const std::string& what) {
  return {
      "",
      0,
      0,
      "MASTER_ADDR",
      what + " " + place.master + ":" + std::to_string(place.port) + ": " + std::strerror(errno),
      "set MASTER_ADDR to rank 0's node and MASTER_PORT to a free port"};
}

bool send_all(int fd, const std::string& bytes) {
  for (std::size_t sent = 0; sent < bytes.size();) {
    const ssize_t n = send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) return false;
    sent += static_cast<std::size_t>(n);
  }
  return true;
}

Result<std::string> serve(const ProcessPlace& place, const std::string& bytes) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  if (getaddrinfo(nullptr, std::to_string(place.port).c_str(), &hints, &found) != 0)
    return network_problem(place, "cannot listen at");
  const Socket listener(socket(AF_INET, SOCK_STREAM, 0));
  const int on = 1;
  setsockopt(listener.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const bool is_bound = bind(listener.fd(), found->ai_addr, found->ai_addrlen) == 0 &&
                        listen(listener.fd(), place.processes) == 0;
  freeaddrinfo(found);
  if (!is_bound) return network_problem(place, "cannot listen at");
  for (int i = 1; i < place.processes; ++i) {
    const Socket peer(accept(listener.fd(), nullptr, nullptr));
    if (!peer.is_open() || !send_all(peer.fd(), bytes))
      return network_problem(place, "lost a process that connected to");
  }
  return bytes;
}

Result<std::string> fetch(const ProcessPlace& place, std::size_t size) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(place.master.c_str(), std::to_string(place.port).c_str(), &hints, &found) != 0)
    return network_problem(place, "cannot resolve");
  std::string bytes(size, '\0');
  std::size_t got = 0;
  for (int i = 0; i < kConnectTries && got == 0; ++i) {
    const Socket peer(socket(AF_INET, SOCK_STREAM, 0));
    if (connect(peer.fd(), found->ai_addr, found->ai_addrlen) != 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(250));
      continue;
    }
    for (ssize_t n = 1; got < size && n > 0;
         got += static_cast<std::size_t>(std::max<ssize_t>(n, 0)))
      n = recv(peer.fd(), bytes.data() + got, size - got, 0);
  }
  freeaddrinfo(found);
  if (got != size) return network_problem(place, "cannot reach rank 0 at");
  return bytes;
}

}  // namespace

Result<ProcessPlace> process_place(const std::function<std::string(const std::string&)>& variable) {
  ProcessPlace place;
  Diagnostics problems;
  const auto read = [&](const std::string& name, int& out) {
    const std::string text = variable(name);
    if (text.empty()) return;
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 0) {
      problems.push_back({"environment", 0, 0, name, "'" + text + "' is not a count", ""});
    } else {
      out = value;
    }
  };
  for (const Variables& v : kLaunchers) {
    if (variable(v.rank).empty() || variable(v.processes).empty()) continue;
    read(v.rank, place.rank);
    read(v.processes, place.processes);
    read(v.local_rank, place.local_rank);
    read(v.local_processes, place.local_processes);
    break;
  }
  if (const std::string master = variable("MASTER_ADDR"); !master.empty()) place.master = master;
  read("MASTER_PORT", place.port);
  if (problems.empty() &&
      (place.processes < 1 || place.rank >= place.processes || place.local_processes < 1)) {
    problems.push_back(
        {"environment", 0, 0, "RANK",
         "rank " + std::to_string(place.rank) + " of " + std::to_string(place.processes), ""});
  }
  if (!problems.empty()) return problems;
  return place;
}

std::vector<int> own_gpus(const ProcessPlace& place, int gpus_of_node) {
  std::vector<int> own;
  if (gpus_of_node == 0) return own;
  if (place.local_processes > 1) return {place.local_rank % gpus_of_node};
  for (int i = 0; i < gpus_of_node; ++i) own.push_back(i);
  return own;
}

Result<std::string> share_bytes(const ProcessPlace& place, const std::string& bytes) {
  if (place.is_alone()) return bytes;
  return place.rank == 0 ? serve(place, bytes) : fetch(place, bytes.size());
}

}  // namespace moecast
