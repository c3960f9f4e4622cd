#include "gateway/http_gateway.h"

#include <fmt/format.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "base/host_port.h"
#include "base/thread_name.h"
#include "gateway/http_connection.h"
#include "gateway/routes.h"

namespace polysil {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

// Beyond connections_max some still get their 503; beyond this many more they are closed unread.
constexpr size_t kRefusedConnectionsMax = 64;
constexpr std::chrono::milliseconds kAcceptRetry{100};

std::string FormatEndpoint(const tcp::endpoint& endpoint) {
  const std::string host = endpoint.address().to_string();
  return endpoint.address().is_v6() ? fmt::format("[{}]:{}", host, endpoint.port())
                                    : fmt::format("{}:{}", host, endpoint.port());
}

StatusOr<tcp::endpoint> Resolve(asio::io_context& io, const std::string& address) {
  const std::optional<HostPort> parsed = ParseHostPort(address);
  if (!parsed) {
    return InvalidArgument("the HTTP address {} is not HOST:PORT or [IPV6]:PORT", address);
  }
  if (parsed->host.empty()) return tcp::endpoint(tcp::v4(), parsed->port);
  boost::system::error_code error;
  const auto results = tcp::resolver(io).resolve(parsed->host, std::to_string(parsed->port), error);
  if (error || results.empty()) {
    return InvalidArgument("the HTTP address {} has a host that does not resolve: {}", address,
                           error.message());
  }
  return results.begin()->endpoint();
}

}  // namespace

class HttpGateway::Server final {
 public:
  Server(const HttpGatewayOptions& options, const TextSlot& slot)
      : options_(options),
        shared_(std::make_shared<HttpShared>()),
        work_(asio::make_work_guard(shared_->io)),
        acceptor_(asio::make_strand(shared_->io)),
        accept_retry_(acceptor_.get_executor()) {
    shared_->limits = options.limits;
    shared_->bodies_bytes_max = static_cast<int64_t>(options.bodies_bytes_max);
    shared_->routes = std::make_shared<Routes>(slot, options.version);
    std::random_device device;
    shared_->request_id_prefix = (static_cast<uint64_t>(device()) << 32) | device();
  }

  Status Listen() {
    ASSIGN_OR_RETURN(const tcp::endpoint endpoint, Resolve(shared_->io, options_.address));
    boost::system::error_code error;
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (!error) bound_ = acceptor_.local_endpoint(error);
    if (error) {
      return Unavailable("the HTTP address {} cannot be bound: {}", options_.address,
                         error.message());
    }
    address_ = FormatEndpoint(bound_);
    return OkStatus();
  }

  void Start() {
    if (!threads_.empty() || stopped_) return;
    Accept();
    for (int32_t i = 0; i < options_.threads; ++i) {
      threads_.emplace_back([shared = shared_, i] {
        SetThreadName(fmt::format("http-{}", i));
        shared->io.run();
      });
    }
  }

  bool Stop(std::chrono::milliseconds grace) {
    if (std::exchange(stopped_, true)) return shared_->cut_off == 0;
    shared_->draining = true;
    asio::post(acceptor_.get_executor(), [this] {
      boost::system::error_code ignored;
      acceptor_.close(ignored);
      accept_retry_.cancel();
    });
    ForEachOpen([](HttpConnection& connection) { connection.Drain(); });
    if (!threads_.empty()) {
      WaitClosed(grace);
      ForEachOpen([](HttpConnection& connection) { connection.Abort(); });
    }
    work_.reset();
    for (std::thread& thread : threads_) thread.join();
    return shared_->cut_off == 0;
  }

  const std::string& address() const { return address_; }
  uint16_t port() const { return bound_.port(); }

 private:
  void Accept() {
    acceptor_.async_accept(asio::make_strand(shared_->io),
                           [this](boost::system::error_code error, tcp::socket socket) {
                             OnAccept(error, std::move(socket));
                           });
  }

  void OnAccept(boost::system::error_code error, tcp::socket socket) {
    if (!acceptor_.is_open()) return;
    if (error) {  // no file descriptors left, say: not again at once
      accept_retry_.expires_after(kAcceptRetry);
      accept_retry_.async_wait([this](boost::system::error_code cancelled) {
        if (!cancelled && acceptor_.is_open()) Accept();
      });
      return;
    }
    const size_t open = OpenConnections();
    const size_t connections_max = static_cast<size_t>(options_.connections_max);
    if (open < connections_max + kRefusedConnectionsMax) {
      const auto connection = std::make_shared<HttpConnection>(shared_, std::move(socket),
                                                               /*refused=*/open >= connections_max);
      connection->Start();
      if (shared_->draining) connection->Drain();
    }
    Accept();
  }

  size_t OpenConnections() {
    std::lock_guard lock(shared_->mutex);
    return shared_->open.size();
  }

  template <typename Task>
  void ForEachOpen(Task task) {
    std::vector<std::shared_ptr<HttpConnection>> open;
    {
      std::lock_guard lock(shared_->mutex);
      for (const auto& [key, weak] : shared_->open) {
        if (auto connection = weak.lock()) open.push_back(std::move(connection));
      }
    }
    for (const auto& connection : open) task(*connection);
  }

  void WaitClosed(std::chrono::milliseconds grace) {
    std::unique_lock lock(shared_->mutex);
    shared_->changed.wait_for(lock, grace, [this] { return shared_->open.empty(); });
  }

  const HttpGatewayOptions options_;
  const std::shared_ptr<HttpShared> shared_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  tcp::acceptor acceptor_;
  asio::steady_timer accept_retry_;
  tcp::endpoint bound_;
  std::string address_;
  std::vector<std::thread> threads_;
  bool stopped_ = false;
};

StatusOr<std::unique_ptr<HttpGateway>> HttpGateway::Create(HttpGatewayOptions options,
                                                           const TextSlot& slot) {
  if (options.threads < 1) {
    return InvalidArgument("the HTTP threads are {}; at least 1 is needed", options.threads);
  }
  auto server = std::make_unique<Server>(options, slot);
  RETURN_IF_ERROR(server->Listen());
  return std::unique_ptr<HttpGateway>(new HttpGateway(std::move(server)));
}

HttpGateway::HttpGateway(std::unique_ptr<Server> server) : server_(std::move(server)) {}

HttpGateway::~HttpGateway() {
  server_->Stop(std::chrono::milliseconds(0));
}

void HttpGateway::Start() {
  server_->Start();
}

const std::string& HttpGateway::address() const {
  return server_->address();
}

uint16_t HttpGateway::port() const {
  return server_->port();
}

bool HttpGateway::Stop(std::chrono::milliseconds grace) {
  return server_->Stop(grace);
}

}  // namespace polysil
