// A blocking HTTP client on a raw loopback socket, for tests: any bytes out, answers in, whole or
// piece by piece. Every wait ends after kPatience. Also a strict reader of event streams.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace polysil {

struct HttpAnswer {
  int status = 0;                              // 0: none came
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // without chunk framing
  bool complete = false;                       // all that was announced came

  boost::json::value Json() const { return boost::json::parse(body); }
  std::string Header(const std::string& name) const {
    const auto it = headers.find(name);
    return it == headers.end() ? std::string() : it->second;
  }
};

class HttpClient final {
 public:
  static constexpr int kPatienceMs = 60'000;

  explicit HttpClient(uint16_t port, int receive_buffer = 0) {
    socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
    if (receive_buffer > 0) {
      ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~HttpClient() { Close(); }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  bool connected() const { return connected_; }

  // False when the server has closed.
  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  bool Post(std::string_view path, std::string_view body, std::string_view headers = "") {
    return Send("POST " + std::string(path) + " HTTP/1.1\r\nHost: test\r\n" + std::string(headers) +
                "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + std::string(body));
  }
  bool Get(std::string_view path, std::string_view headers = "") {
    return Send("GET " + std::string(path) + " HTTP/1.1\r\nHost: test\r\n" + std::string(headers) +
                "\r\n");
  }

  // One answer, to its end. `head`: it has no body, whatever it announces.
  HttpAnswer Receive(bool head = false) {
    HttpAnswer answer = ReceiveHead();
    if (answer.status == 0 || head) {
      answer.complete = answer.status != 0;
      return answer;
    }
    if (answer.Header("transfer-encoding") == "chunked") {
      while (const std::optional<std::string> chunk = ReceiveChunk()) {
        if (chunk->empty()) {
          answer.complete = true;
          break;
        }
        answer.body += *chunk;
      }
    } else if (!answer.Header("content-length").empty()) {
      const size_t length = std::stoul(answer.Header("content-length"));
      while (input_.size() < length && Fill()) {
      }
      answer.complete = input_.size() >= length;
      answer.body = Take(std::min(length, input_.size()));
    } else {
      while (Fill()) {
      }
      answer.complete = true;
      answer.body = Take(input_.size());
    }
    return answer;
  }

  HttpAnswer ReceiveHead() {
    HttpAnswer answer;
    size_t end;
    while ((end = input_.find("\r\n\r\n")) == std::string::npos) {
      if (!Fill()) return answer;
    }
    const std::string head = Take(end + 4);
    answer.status = std::atoi(head.c_str() + std::min<size_t>(head.size(), 9));
    for (size_t at = head.find("\r\n") + 2; at < head.size();) {
      const size_t line_end = head.find("\r\n", at);
      const size_t colon = head.find(": ", at);
      if (colon == std::string::npos || colon > line_end) break;
      std::string name = head.substr(at, colon - at);
      std::transform(name.begin(), name.end(), name.begin(), ::tolower);
      answer.headers[name] = head.substr(colon + 2, line_end - colon - 2);
      at = line_end + 2;
    }
    return answer;
  }

  // The next chunk of a chunked body; empty: the last; none: the connection ended before.
  std::optional<std::string> ReceiveChunk() {
    size_t end;
    while ((end = input_.find("\r\n")) == std::string::npos) {
      if (!Fill()) return std::nullopt;
    }
    const size_t length = std::stoul(Take(end + 2), nullptr, 16);
    while (input_.size() < length + 2) {
      if (!Fill()) return std::nullopt;
    }
    std::string chunk = Take(length);
    Take(2);
    return chunk;
  }

  // Reads chunks until so many events of a stream have begun; false when the stream ends before.
  // How many events share a chunk is the server's to choose.
  bool ReceiveEvents(int64_t events) {
    while (events_ < events) {
      const std::optional<std::string> chunk = ReceiveChunk();
      if (!chunk || chunk->empty()) return false;
      for (size_t at = 0; (at = chunk->find("data: ", at)) != std::string::npos; ++at) ++events_;
    }
    return true;
  }

  // True when the server has closed and nothing is left to read.
  bool AtEnd() { return input_.empty() && !Fill(); }

  void ShutdownSend() { ::shutdown(socket_, SHUT_WR); }
  // Closes with RST instead of FIN.
  void Reset() {
    const linger hard{1, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
    Close();
  }
  void Close() {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }

 private:
  bool Fill() {
    pollfd ready{socket_, POLLIN, 0};
    if (::poll(&ready, 1, kPatienceMs) <= 0) return false;
    char block[65536];
    const ssize_t received = ::recv(socket_, block, sizeof(block), 0);
    if (received <= 0) return false;
    input_.append(block, static_cast<size_t>(received));
    return true;
  }
  std::string Take(size_t bytes) {
    std::string taken = input_.substr(0, bytes);
    input_.erase(0, bytes);
    return taken;
  }

  int socket_ = -1;
  bool connected_ = false;
  std::string input_;
  int64_t events_ = 0;
};

// The events of a stream, each one "data: " line and an empty line, nothing else. `well_formed`
// says whether it was so; `done` whether the last was [DONE], which `events` does not have.
struct EventStream {
  std::vector<boost::json::object> events;
  bool well_formed = true;
  bool done = false;

  explicit EventStream(std::string_view body) {
    while (!body.empty()) {
      const size_t end = body.find("\n\n");
      if (end == std::string_view::npos || !body.starts_with("data: ") || done) {
        well_formed = false;
        return;
      }
      const std::string_view data = body.substr(6, end - 6);
      body.remove_prefix(end + 2);
      if (data.find_first_of("\r\n") != std::string_view::npos) well_formed = false;
      if (data == "[DONE]") {
        done = true;
        continue;
      }
      boost::system::error_code error;
      const boost::json::value value =
          boost::json::parse(boost::json::string_view(data.data(), data.size()), error);
      if (error || !value.is_object()) {
        well_formed = false;
        return;
      }
      events.push_back(value.as_object());
    }
  }
};

}  // namespace polysil
