// CannedServer: an HTTP server of one thread that answers every request with the bytes that a
// function of its path and body gives, and closes the connection. For clients that must live with
// any server.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace polysil {

class CannedServer final {
 public:
  using Answer = std::function<std::string(const std::string& path, const std::string& body)>;

  explicit CannedServer(Answer answer) : answer_(std::move(answer)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address));
    ::listen(listener_, 128);
    socklen_t length = sizeof(address);
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    stop_ = ::eventfd(0, 0);
    thread_ = std::thread([this] { Serve(); });
  }
  ~CannedServer() {
    const uint64_t one = 1;
    (void)!::write(stop_, &one, sizeof(one));
    thread_.join();
    ::close(stop_);
    ::close(listener_);
  }
  CannedServer(const CannedServer&) = delete;
  CannedServer& operator=(const CannedServer&) = delete;

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

  // A whole answer that ends with the connection.
  static std::string Http(std::string_view status, std::string_view type, std::string_view body) {
    return "HTTP/1.1 " + std::string(status) + "\r\nContent-Type: " + std::string(type) +
           "\r\nConnection: close\r\n\r\n" + std::string(body);
  }

 private:
  void Serve() {
    while (true) {
      pollfd ready[2] = {{listener_, POLLIN, 0}, {stop_, POLLIN, 0}};
      ::poll(ready, 2, -1);
      if (ready[1].revents != 0) return;
      const int connection = ::accept(listener_, nullptr, nullptr);
      if (connection < 0) continue;
      AnswerOne(connection);
      ::close(connection);
    }
  }

  void AnswerOne(int connection) const {
    std::string input;
    size_t head = std::string::npos;
    size_t length = 0;
    while (head == std::string::npos || input.size() < head + 4 + length) {
      char block[65536];
      const ssize_t received = ::recv(connection, block, sizeof(block), 0);
      if (received <= 0) return;
      input.append(block, static_cast<size_t>(received));
      if (head != std::string::npos) continue;
      head = input.find("\r\n\r\n");
      const size_t at = input.find("Content-Length: ");
      if (head != std::string::npos && at < head) length = std::stoul(input.substr(at + 16));
    }
    const size_t path = input.find(' ') + 1;
    const std::string output =
        answer_(input.substr(path, input.find(' ', path) - path), input.substr(head + 4, length));
    for (size_t sent = 0; sent < output.size();) {
      const ssize_t now =
          ::send(connection, output.data() + sent, output.size() - sent, MSG_NOSIGNAL);
      if (now <= 0) return;
      sent += static_cast<size_t>(now);
    }
  }

  const Answer answer_;
  int listener_ = -1;
  int stop_ = -1;
  uint16_t port_ = 0;
  std::thread thread_;
};

}  // namespace polysil
