// Over 500 lines: one state machine, to be read in one piece.
#include "gateway/http_connection.h"

#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <boost/beast/http/error.hpp>
#include <iterator>
#include <utility>

#include "base/log.h"
#include "gateway/error_reply.h"
#include "gateway/http_request_parser.h"
#include "gateway/http_wire.h"

namespace polysil {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

// Read ahead while an answer is in progress, to see the client leave; more than this stays in the
// kernel.
constexpr size_t kPipelineBytesMax = 64 * 1024;
// How long and how much we listen after the last byte, so that the client can read it before the
// connection is reset.
constexpr std::chrono::milliseconds kLingerTime{5'000};
constexpr size_t kLingerBytesMax = 64 * 1024 * 1024;
// Lines between chunks may be this long.
constexpr size_t kChunkLineBytesMax = 4 * 1024;

std::string_view View(boost::beast::string_view text) {
  return {text.data(), text.size()};
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

}  // namespace

// One request's way back. Outlives the connection in the hands of calls that still run.
class HttpConnection::ConnectionExchange final
    : public Exchange,
      public std::enable_shared_from_this<ConnectionExchange> {
 public:
  explicit ConnectionExchange(std::weak_ptr<HttpConnection> connection)
      : connection_(std::move(connection)) {}

  void Post(std::function<void()> task) override {
    const std::shared_ptr<HttpConnection> connection = connection_.lock();
    if (connection == nullptr) return;
    // Weak: a task that is never run must not keep the connection and its io_context alive.
    asio::post(connection->socket_.get_executor(),
               [self = shared_from_this(), task = std::move(task)] {
                 if (self->Current() != nullptr) task();
               });
  }
  void SetGone(std::function<void()> gone) override {
    {
      std::lock_guard lock(mutex_);
      if (!ended_) {
        gone_ = std::move(gone);
        return;
      }
      if (!was_cut_) return;
    }
    gone();
  }
  void Reply(HttpReply reply) override {
    if (const auto connection = Current()) connection->SendReply(std::move(reply));
  }
  void BeginStream(std::string_view content_type) override {
    if (const auto connection = Current()) connection->BeginStream(content_type);
  }
  void Write(std::string_view bytes) override {
    if (const auto connection = Current()) connection->WriteStream(bytes);
  }
  void EndStream() override {
    if (const auto connection = Current()) connection->EndStream();
  }

  void WhenSent(std::function<void()> task) override {
    const std::shared_ptr<HttpConnection> connection = connection_.lock();
    connection != nullptr ? connection->WhenSent(std::move(task)) : task();
  }

  // The answer is complete, or (`cut`) never will be.
  void End(bool cut) {
    std::function<void()> gone;
    {
      std::lock_guard lock(mutex_);
      ended_ = true;
      was_cut_ = cut;
      gone.swap(gone_);
    }
    if (cut && gone) gone();
  }

 private:
  // The connection while it still works on this request.
  std::shared_ptr<HttpConnection> Current() {
    std::shared_ptr<HttpConnection> connection = connection_.lock();
    if (connection == nullptr || connection->exchange_.get() != this) return nullptr;
    return connection;
  }

  const std::weak_ptr<HttpConnection> connection_;
  std::mutex mutex_;  // guards what follows
  std::function<void()> gone_;
  bool ended_ = false;
  bool was_cut_ = false;
};

HttpConnection::HttpConnection(std::shared_ptr<HttpShared> shared, asio::ip::tcp::socket socket,
                               bool refused)
    : shared_(std::move(shared)),
      refused_(refused),
      socket_(std::move(socket)),
      timer_(socket_.get_executor()),
      parser_(std::make_unique<HttpRequestParser>()) {}

HttpConnection::~HttpConnection() = default;

void HttpConnection::Start() {
  {
    std::lock_guard lock(shared_->mutex);
    key_ = shared_->next_key++;
    shared_->open.emplace(key_, weak_from_this());
  }
  asio::dispatch(socket_.get_executor(), [self = shared_from_this()] {
    ErrorCode ignored;
    self->socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
    if (self->refused_) {
      HttpReply reply = ProtocolErrorReply(503, "too many connections are open", "overloaded");
      reply.headers.emplace_back("Retry-After", "1");
      self->Refuse(std::move(reply));
      return;
    }
    self->SetDeadline(self->shared_->limits.header_timeout);
    self->Read();
  });
}

void HttpConnection::Drain() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    self->keep_alive_ = false;
    const bool idle = !self->exchange_ && !self->parser_->request && self->UnsentBytes() == 0;
    if (idle) self->Close();
  });
}

void HttpConnection::Abort() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    if (self->closed_) return;
    if (self->exchange_ || self->UnsentBytes() > 0) ++self->shared_->cut_off;
    self->Close();
  });
}

// --- reading ---

// One read is always pending, also while an answer is in progress: it is how we see the client
// leave.
void HttpConnection::Read() {
  if (read_active_ || closed_ || peer_half_closed_) return;
  const size_t input_max = kPipelineBytesMax + shared_->limits.header_bytes_max;
  if (!lingering_ && parser_->input.size() >= input_max) return;
  read_active_ = true;
  socket_.async_read_some(
      asio::buffer(read_block_),
      [self = shared_from_this()](ErrorCode error, size_t bytes) { self->OnRead(error, bytes); });
}

void HttpConnection::OnRead(ErrorCode error, size_t bytes) {
  read_active_ = false;
  if (closed_) return;
  if (error) {
    OnPeerGone(error == asio::error::eof);
    return;
  }
  if (lingering_) {
    lingered_bytes_ += bytes;
    lingered_bytes_ > kLingerBytesMax ? Close() : Read();
    return;
  }
  const asio::mutable_buffer space = parser_->input.prepare(bytes);
  std::copy_n(read_block_.data(), bytes, static_cast<char*>(space.data()));
  parser_->input.commit(bytes);
  // While "100 Continue" is being written the body may come already.
  const bool writing_answer = UnsentBytes() > 0 && !parser_->request;
  if (exchange_ != nullptr || writing_answer || close_when_flushed_) {
    Read();
    return;
  }
  ParseInput();
}

// A client that has closed only its sending side is gone for us, too: nothing else tells it from
// one that has closed both. But what it asked before, and what is on its way to it, it still gets.
void HttpConnection::OnPeerGone(bool half_closed) {
  peer_half_closed_ = true;
  if (!half_closed || exchange_ != nullptr || UnsentBytes() == 0) Close();
}

// Takes the next request out of the input. Nothing is being answered or written.
void HttpConnection::ParseInput() {
  boost::beast::flat_buffer& input = parser_->input;
  while (input.size() > 0) {
    if (!parser_->request) {
      // Empty lines before a request are allowed; clients send them after a body.
      const char first = *static_cast<const char*>(input.data().data());
      if (first == '\r' || first == '\n') {
        input.consume(1);
        continue;
      }
      parser_->Begin(shared_->limits);
      request_begun_ = Clock::now();
      method_.clear();
      path_.clear();
      request_id_.clear();
      http10_ = false;
      keep_alive_ = true;
      SetDeadline(shared_->limits.header_timeout);
    }
    ErrorCode error;
    const size_t used = parser_->request->put(input.data(), error);
    input.consume(used);
    if (error == http::error::need_more) {
      const bool line_too_long = parser_->head_done && input.size() > kChunkLineBytesMax;
      if (!line_too_long) break;
      error = http::error::bad_chunk_extension;
    }
    if (error) {
      OnParseError(error);
      return;
    }
    if (!parser_->head_done && parser_->request->is_header_done() && !OnHead()) return;
    if (!ChargeBody()) return;
    if (parser_->request->is_done()) {
      Dispatch();
      return;
    }
  }
  if (peer_half_closed_) {
    Close();
    return;
  }
  if (!parser_->request) SetDeadline(shared_->limits.idle_timeout);
  Read();
}

// Checks what can be checked before the body comes. False: answered already.
bool HttpConnection::OnHead() {
  parser_->head_done = true;
  parser_->body_begun = Clock::now();
  const auto& head = parser_->request->get();
  method_ = View(head.method_string());
  http10_ = head.version() < 11;
  keep_alive_ = head.keep_alive() && !shared_->draining;
  const std::string_view given_id = View(head["X-Request-Id"]);
  request_id_ = IsSafeRequestId(given_id)
                    ? std::string(given_id)
                    : fmt::format("req-{:016x}{:08x}", shared_->request_id_prefix,
                                  shared_->request_ids.fetch_add(1));
  const std::optional<std::string> path = PathOf(View(head.target()));
  path_ = path.value_or("");

  std::optional<HttpReply> refusal;
  const std::string encoding = Lower(View(head[http::field::transfer_encoding]));
  const std::string content_encoding = Lower(View(head[http::field::content_encoding]));
  const std::string expectation = Lower(View(head[http::field::expect]));
  if (std::distance(head.begin(), head.end()) > shared_->limits.headers_max) {
    refusal = ProtocolErrorReply(
        431, fmt::format("there are more than {} header fields", shared_->limits.headers_max));
  } else if (!path) {
    refusal = ProtocolErrorReply(400, "the request target is not well-formed");
  } else if (!http10_ && head.count(http::field::host) != 1) {
    refusal = ProtocolErrorReply(400, "HTTP/1.1 requests have one Host field");
  } else if (!encoding.empty() && encoding != "chunked") {
    refusal = ProtocolErrorReply(400, "the only transfer encoding taken is chunked");
  } else if (!content_encoding.empty() && content_encoding != "identity") {
    refusal = ProtocolErrorReply(415, "encoded bodies are not taken");
  } else if (!expectation.empty() && expectation != "100-continue") {
    refusal = ProtocolErrorReply(417, "the only expectation that is met is 100-continue");
  } else {
    refusal = shared_->routes->CheckHead(method_, path_);
    // Without a body there is nothing left unread: the connection can go on.
    if (refusal && parser_->request->is_done()) refusal.reset();
  }
  if (refusal) {
    Refuse(*std::move(refusal));
    return false;
  }
  parser_->request->eager(true);
  if (!parser_->request->is_done()) {
    if (!expectation.empty() && !http10_) Queue("HTTP/1.1 100 Continue\r\n\r\n");
    SetDeadline(shared_->limits.body_timeout);
  }
  return true;
}

// The deadline moves with what has come: a fixed time, and that of the slowest rate we bear.
bool HttpConnection::ChargeBody() {
  const size_t bytes = parser_->request->get().body().size();
  if (bytes == 0) return true;
  if (parser_->charge == nullptr) parser_->charge = std::make_shared<BodyCharge>(shared_);
  if (!parser_->charge->GrowTo(static_cast<int64_t>(bytes))) {
    HttpReply reply =
        ProtocolErrorReply(429, "too many large requests are being read", "overloaded");
    reply.headers.emplace_back("Retry-After", "1");
    Refuse(std::move(reply));
    return false;
  }
  const auto spent =
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - parser_->body_begun);
  const std::chrono::milliseconds earned(bytes * 1000 / shared_->limits.body_bytes_per_second_min);
  SetDeadline(
      std::max(std::chrono::milliseconds(0), shared_->limits.body_timeout + earned - spent));
  return true;
}

void HttpConnection::OnParseError(ErrorCode error) {
  if (error == http::error::body_limit) {
    Refuse(ProtocolErrorReply(
        413, fmt::format("the body is longer than {} bytes", shared_->limits.body_bytes_max)));
  } else if (error == http::error::header_limit) {
    const bool in_target = parser_->request->get().target().empty();
    Refuse(ProtocolErrorReply(
        in_target ? 414 : 431,
        fmt::format("the request head is longer than {} bytes", shared_->limits.header_bytes_max)));
  } else {
    Refuse(ProtocolErrorReply(400, "this is not HTTP as we know it: " + error.message()));
  }
}

void HttpConnection::Dispatch() {
  ClearDeadline();
  HttpRequest request{.method = method_,
                      .path = path_,
                      .body = std::move(parser_->request->get().body()),
                      .caller = parser_->CallerOf(),
                      .id = request_id_,
                      .age_ns = std::chrono::nanoseconds(Clock::now() - request_begun_).count(),
                      .body_charge = std::move(parser_->charge)};
  parser_->End();
  exchange_ = std::make_shared<ConnectionExchange>(weak_from_this());
  shared_->routes->Handle(std::move(request), exchange_);
  Read();
  if (!peer_half_closed_) return;
  // After the answer, if there is one at once.
  asio::post(socket_.get_executor(), [self = shared_from_this(), exchange = exchange_] {
    if (self->exchange_ == exchange) self->Close();
  });
}

// Answers a request that was not read to its end; the connection cannot go on.
void HttpConnection::Refuse(HttpReply reply) {
  keep_alive_ = false;
  if (!parser_->request) request_begun_ = Clock::now();
  parser_->End();
  exchange_ = std::make_shared<ConnectionExchange>(weak_from_this());
  SendReply(std::move(reply));
}

// --- answering ---

void HttpConnection::SendReply(HttpReply reply) {
  status_ = reply.status;
  keep_alive_ = keep_alive_ && !shared_->draining;
  std::string bytes = FormatHead({.status = reply.status,
                                  .content_type = reply.content_type,
                                  .content_length = reply.body.size(),
                                  .http10 = http10_,
                                  .keep_alive = keep_alive_,
                                  .request_id = request_id_,
                                  .headers = std::move(reply.headers)});
  if (method_ != "HEAD") bytes += reply.body;
  Queue(std::move(bytes));
  FinishExchange();
}

void HttpConnection::BeginStream(std::string_view content_type) {
  status_ = 200;
  // HTTP/1.0 has no chunks: the end of the connection ends the body.
  keep_alive_ = keep_alive_ && !shared_->draining && !http10_;
  Queue(FormatHead({.content_type = content_type,
                    .chunked = !http10_,
                    .http10 = http10_,
                    .keep_alive = keep_alive_,
                    .request_id = request_id_,
                    .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}}));
}

void HttpConnection::WriteStream(std::string_view bytes) {
  if (bytes.empty()) return;
  if (UnsentBytes() + bytes.size() > shared_->limits.output_bytes_max) {
    Log(LogLevel::kWarning, "http id={}: the reader is {} bytes behind; cancelled", request_id_,
        UnsentBytes());
    Close();
    return;
  }
  Queue(http10_ ? std::string(bytes) : FormatChunk(bytes));
}

void HttpConnection::EndStream() {
  if (!http10_) Queue("0\r\n\r\n");
  FinishExchange();
}

void HttpConnection::FinishExchange() {
  const auto elapsed =
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - request_begun_);
  Log(method_ == "GET" || method_ == "HEAD" ? LogLevel::kDebug : LogLevel::kInfo,
      "http {} {} {} {} ms id={}", LogMethod(), Routes::LogName(path_), status_, elapsed.count(),
      request_id_);
  if (!keep_alive_) close_when_flushed_ = true;
  std::exchange(exchange_, nullptr)->End(/*cut=*/false);
}

// A method as it may stand in a log.
std::string_view HttpConnection::LogMethod() const {
  const bool known = method_ == "GET" || method_ == "HEAD" || method_ == "POST";
  return known ? std::string_view(method_) : "other";
}

// --- writing ---

// What is queued within one task leaves in one piece.
void HttpConnection::Queue(std::string bytes) {
  if (closed_) return;
  out_.empty() ? out_.swap(bytes) : static_cast<void>(out_ += bytes);
  if (write_active_ || std::exchange(write_posted_, true)) return;
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    self->write_posted_ = false;
    if (!self->closed_ && !self->write_active_) self->WriteSome();
  });
}

void HttpConnection::WriteSome() {
  if (writing_offset_ == writing_.size()) {
    writing_.clear();
    writing_offset_ = 0;
    writing_.swap(out_);
  }
  write_active_ = true;
  SetDeadline(shared_->limits.write_timeout);
  socket_.async_write_some(
      asio::buffer(writing_.data() + writing_offset_, writing_.size() - writing_offset_),
      [self = shared_from_this()](ErrorCode error, size_t bytes) { self->OnWrite(error, bytes); });
}

void HttpConnection::OnWrite(ErrorCode error, size_t bytes) {
  write_active_ = false;
  if (closed_) return;
  if (error) {
    Close();
    return;
  }
  writing_offset_ += bytes;
  if (UnsentBytes() > 0) {
    WriteSome();
    return;
  }
  ClearDeadline();
  RunSentTasks();
  if (exchange_ == nullptr) OnFlushed();
}

void HttpConnection::WhenSent(std::function<void()> task) {
  sent_tasks_.push_back(std::move(task));
  if (closed_ || UnsentBytes() == 0) RunSentTasks();
}

void HttpConnection::RunSentTasks() {
  for (const std::function<void()>& task : std::exchange(sent_tasks_, {})) task();
}

// All answers so far are with the client.
void HttpConnection::OnFlushed() {
  if (parser_->request) {  // it was "100 Continue"
    SetDeadline(shared_->limits.body_timeout);
  } else if (close_when_flushed_) {
    Linger();
  } else {
    ParseInput();
  }
}

// Says that no more will come and waits for the client to say the same.
void HttpConnection::Linger() {
  if (peer_half_closed_) {
    Close();
    return;
  }
  ErrorCode ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  lingering_ = true;
  SetDeadline(kLingerTime);
  Read();
}

void HttpConnection::Close() {
  if (std::exchange(closed_, true)) return;
  if (exchange_ != nullptr) {
    Log(LogLevel::kInfo, "http {} {} cut off id={}", LogMethod(), Routes::LogName(path_),
        request_id_);
    std::exchange(exchange_, nullptr)->End(/*cut=*/true);
  }
  ErrorCode ignored;
  socket_.close(ignored);
  timer_.cancel();
  parser_->End();
  RunSentTasks();
  std::lock_guard lock(shared_->mutex);
  shared_->open.erase(key_);
  shared_->changed.notify_all();
}

// --- time ---

void HttpConnection::SetDeadline(std::chrono::milliseconds from_now) {
  deadline_ = Clock::now() + from_now;
  if (!timer_armed_for_ || *timer_armed_for_ > deadline_) ArmTimer();
}

// Armed once for many deadlines: when it fires early it is armed again for what is left.
void HttpConnection::ArmTimer() {
  timer_armed_for_ = deadline_;
  timer_.expires_at(deadline_);
  timer_.async_wait([self = shared_from_this()](ErrorCode error) {
    if (error || self->closed_) return;
    self->timer_armed_for_.reset();
    if (self->deadline_ == Clock::time_point::max()) return;
    if (Clock::now() < self->deadline_) {
      self->ArmTimer();
    } else {
      self->OnDeadline();
    }
  });
}

void HttpConnection::OnDeadline() {
  ClearDeadline();
  const bool reading = exchange_ == nullptr && !write_active_ && parser_->request;
  if (reading) {
    Refuse(ProtocolErrorReply(408, "the request did not come in time"));
  } else {
    Close();
  }
}

}  // namespace polysil
