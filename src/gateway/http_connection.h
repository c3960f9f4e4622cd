// HttpConnection: one socket, from accept to close: reads requests one after the other, hands each
// to the routes, writes the answers in order, notices when the client leaves. Every method runs on
// the connection's strand unless it says otherwise. Only http_connection.cc and http_gateway.cc
// include this: it is what Boost costs in compile time.
#pragma once

#include <array>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "gateway/exchange.h"
#include "gateway/http_gateway.h"
#include "gateway/routes.h"

namespace polysil {

class HttpConnection;
struct HttpRequestParser;

// What the connections of one gateway share. Lives until the last of them is gone.
struct HttpShared {
  boost::asio::io_context io;
  HttpLimits limits;
  int64_t bodies_bytes_max = 0;
  std::shared_ptr<Routes> routes;
  uint64_t request_id_prefix = 0;
  std::atomic<uint64_t> request_ids = 0;
  std::atomic<int64_t> bodies_bytes = 0;
  std::atomic<bool> draining = false;
  std::atomic<uint64_t> cut_off = 0;  // answers that were not finished

  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  uint64_t next_key = 0;
  std::map<uint64_t, std::weak_ptr<HttpConnection>> open;
};

class HttpConnection final : public std::enable_shared_from_this<HttpConnection> {
 public:
  // `refused`: one too many; it gets 503 and no more.
  HttpConnection(std::shared_ptr<HttpShared> shared, boost::asio::ip::tcp::socket socket,
                 bool refused);
  ~HttpConnection();

  // From any thread:
  void Start();
  void Drain();  // closes when the answer in progress is out, now if there is none
  void Abort();  // closes now

 private:
  class ConnectionExchange;
  using Clock = std::chrono::steady_clock;
  using ErrorCode = boost::system::error_code;

  void Read();
  void OnRead(ErrorCode error, size_t bytes);
  void OnPeerGone(bool half_closed);
  void ParseInput();
  bool OnHead();
  void OnParseError(ErrorCode error);
  bool ChargeBody();
  void Dispatch();
  void Refuse(HttpReply reply);

  void SendReply(HttpReply reply);
  void BeginStream(std::string_view content_type);
  void WriteStream(std::string_view bytes);
  void EndStream();
  void FinishExchange();
  std::string_view LogMethod() const;

  void Queue(std::string bytes);
  void WriteSome();
  void OnWrite(ErrorCode error, size_t bytes);
  void WhenSent(std::function<void()> task);
  void RunSentTasks();
  void OnFlushed();
  void Linger();
  void Close();
  void SetDeadline(std::chrono::milliseconds from_now);
  void ClearDeadline() { deadline_ = Clock::time_point::max(); }
  void ArmTimer();
  void OnDeadline();
  size_t UnsentBytes() const { return out_.size() + writing_.size() - writing_offset_; }

  const std::shared_ptr<HttpShared> shared_;  // first: the socket's io_context lives in it
  const bool refused_;
  uint64_t key_ = 0;
  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer timer_;
  Clock::time_point deadline_ = Clock::time_point::max();
  std::optional<Clock::time_point> timer_armed_for_;

  std::array<char, 16 * 1024> read_block_;
  bool read_active_ = false;
  std::unique_ptr<HttpRequestParser> parser_;

  // The request that is being answered.
  std::shared_ptr<ConnectionExchange> exchange_;
  std::string method_;
  std::string path_;
  std::string request_id_;
  Clock::time_point request_begun_;
  bool http10_ = false;
  bool keep_alive_ = true;
  int status_ = 0;

  std::string out_;      // to be written next
  std::string writing_;  // being written
  size_t writing_offset_ = 0;
  std::vector<std::function<void()>> sent_tasks_;  // for when nothing is unsent
  bool write_active_ = false;
  bool write_posted_ = false;
  bool close_when_flushed_ = false;
  bool peer_half_closed_ = false;
  bool lingering_ = false;
  size_t lingered_bytes_ = 0;
  bool closed_ = false;
};

}  // namespace polysil
