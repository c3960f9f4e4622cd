// HttpRequestParser: one connection's input and the request that is being taken out of it. Beast
// does the parsing; this bounds it. Only http_connection.cc includes this.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "gateway/http_connection.h"
#include "gateway/http_gateway.h"
#include "session/tenant.h"

namespace polysil {

// A body that grows as it comes and allocates nothing for what was only announced.
struct GrowingBody {
  using value_type = std::string;
  class reader {
   public:
    template <bool kIsRequest, typename Fields>
    reader(boost::beast::http::header<kIsRequest, Fields>&, value_type& body) : body_(body) {}
    void init(const boost::optional<uint64_t>&, boost::system::error_code& error) { error = {}; }
    template <typename Buffers>
    size_t put(const Buffers& buffers, boost::system::error_code& error) {
      error = {};
      const size_t before = body_.size();
      for (const boost::asio::const_buffer buffer : boost::beast::buffers_range_ref(buffers)) {
        body_.append(static_cast<const char*>(buffer.data()), buffer.size());
      }
      return body_.size() - before;
    }
    void finish(boost::system::error_code& error) { error = {}; }

   private:
    value_type& body_;
  };
};

// A share of the gateway's budget for bodies.
class BodyCharge final {
 public:
  explicit BodyCharge(std::shared_ptr<HttpShared> shared) : shared_(std::move(shared)) {}
  ~BodyCharge() { shared_->bodies_bytes -= bytes_; }
  BodyCharge(const BodyCharge&) = delete;
  BodyCharge& operator=(const BodyCharge&) = delete;

  // False when the budget is spent.
  bool GrowTo(int64_t bytes) {
    const int64_t more = bytes - bytes_;
    bytes_ = bytes;
    return (shared_->bodies_bytes += more) <= shared_->bodies_bytes_max;
  }

 private:
  const std::shared_ptr<HttpShared> shared_;
  int64_t bytes_ = 0;
};

struct HttpRequestParser {
  boost::beast::flat_buffer input;  // read and not parsed yet
  // The request that is being read, from its first byte to its last.
  std::optional<boost::beast::http::request_parser<GrowingBody>> request;
  bool head_done = false;
  std::chrono::steady_clock::time_point body_begun;
  std::shared_ptr<BodyCharge> charge;

  void Begin(const HttpLimits& limits) {
    request.emplace();
    request->header_limit(static_cast<uint32_t>(limits.header_bytes_max));
    request->body_limit(limits.body_bytes_max);
    head_done = false;
  }
  // Of the request that is read as a whole. A field that was given twice says nothing: one of them
  // may be the client's, and the other that of a proxy which knows better.
  Caller CallerOf() const {
    const auto& head = request->get();
    const auto value = [&head](boost::beast::string_view name) -> std::optional<std::string> {
      if (head.count(name) == 0) return std::nullopt;
      if (head.count(name) > 1) return std::string();
      return std::string(head[name].data(), head[name].size());
    };
    return {.authorization = value("Authorization").value_or(""),
            .tenant_id = value("X-Tenant-Id")};
  }
  void End() {
    request.reset();
    charge.reset();
    head_done = false;
  }
};

}  // namespace polysil
