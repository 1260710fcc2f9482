// The sockets of `ttr serve`, by Boost.Beast; what is answered is in serve_api.h. The only file that includes Boost.
//
// A connection is a Session: it reads a request, has it answered, writes the response, and begins again. All of a session
// happens on one thread, the Worker it was given when it came; threads share nothing but models, so no request wakes another
// thread. Deadlines are looked at by a clock of the worker, four times a second: a timer for each would cost more than a
// request. What a client can make the server hold is bounded: connections,
// the bytes of headers (16 KB) and bodies, answers of a stream that nobody reads, and the time until a request is complete.
// Requests of one connection are answered one after the other, whether the client waits or not (pipelining).
//
// Beast and not a server with a thread per connection, because slow clients must not hold threads, a request must have a
// deadline as a whole, and a stream of lines is answered while it arrives.
#include "serve.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <limits>
#include <memory>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <poll.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

#include "aside.h"
#include "progress.h"
#include "regress_parts.h"
#include "serve_api.h"
#include "standard_files.h"
#include "ttr/status.h"
#include "ttr/version.h"

namespace ttr::cli {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;
namespace net = boost::asio;
using boost::system::error_code;
using net::ip::tcp;

constexpr std::size_t longest_header = 16 << 10, stream_block = 64 << 10;
// Not boost::none, which version 1.74 takes for a limit of zero.
constexpr std::uint64_t no_limit = std::numeric_limits<std::uint64_t>::max();

std::string_view view(boost::string_view text) { return {text.data(), text.size()}; }
double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

class Session;

// What all sessions share.
struct Server {
  const ServeOptions& options;
  ModelStore& store;
  ServeMetrics& metrics;
  ServeApi& api;
  TextService* text;  // null: there is none

  std::mutex mutex;
  std::condition_variable changed;
  std::set<Session*> sessions;
  std::atomic<bool> ending = false;
  bool save_wanted = false, stop_saver = false;

  void enter(Session* session) {
    const std::lock_guard lock(mutex);
    sessions.insert(session);
    metrics.connections = static_cast<std::int64_t>(sessions.size());
  }
  void leave(Session* session) {
    const std::lock_guard lock(mutex);
    sessions.erase(session);
    metrics.connections = static_cast<std::int64_t>(sessions.size());
    changed.notify_all();
  }
  // After rows were learned.
  void look_at_log() {
    if (!store.log_is_long()) return;
    const std::lock_guard lock(mutex);
    save_wanted = true;
    changed.notify_all();
  }
};

// A thread and the sessions it serves.
class Worker {
 public:
  using Clock = std::chrono::steady_clock;
  Worker() : tick_(context_) {}
  net::io_context& context() { return context_; }
  void run() {
    look_at_deadlines();
    context_.run();
  }
  // On its own thread alone.
  void enter(Session* session) { sessions_.insert(session); }
  void leave(Session* session) { sessions_.erase(session); }

 private:
  void look_at_deadlines();

  std::set<Session*> sessions_;  // before the context, whose end is the end of sessions that are still there
  net::io_context context_{1};
  net::steady_timer tick_;
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(tcp::socket socket, Server& server, Worker& worker)
      : stream_(std::move(socket)), server_(server), worker_(worker) {
    server_.enter(this);
  }
  ~Session() {
    worker_.leave(this);
    server_.leave(this);
  }

  void start() {
    net::post(stream_.get_executor(), [self = shared_from_this()] {
      self->worker_.enter(self.get());
      self->read_header();
    });
  }

  // The server is about to end: a connection that waits for a request is closed, one that has begun a request finishes it.
  void end() {
    // The last one who has a session must be its worker: the caller holds the lock that leave() takes.
    if (std::shared_ptr<Session> alive = weak_from_this().lock()) {
      const auto executor = stream_.get_executor();
      net::post(executor, [self = std::move(alive)] {
        if (self->completing_) self->give_up();
        else if (self->waiting_ || self->lines_) self->close();
      });
    }
  }

  void close_if_late(Worker::Clock::time_point now) {
    if (now > deadline_) close();
  }

 private:
  void close() {
    error_code ignored;
    stream_.shutdown(tcp::socket::shutdown_both, ignored);
    stream_.close(ignored);
  }
  void expires_after(int seconds) { deadline_ = Worker::Clock::now() + std::chrono::seconds(seconds); }
  void expires_never() { deadline_ = Worker::Clock::time_point::max(); }

  void read_header() {
    if (server_.ending) return close();
    header_.emplace();
    header_->header_limit(longest_header);
    header_->body_limit(no_limit);  // judged when the header is there
    waiting_ = true;
    expires_after(server_.options.idle_timeout);
    // Half a header has the time of a request, and not that between requests.
    http::async_read_some(stream_, buffer_, *header_,
                          [self = shared_from_this()](error_code error, std::size_t) { self->header_part(error); });
  }

  void header_part(error_code error) {
    if (!error && !header_->is_header_done()) {
      if (waiting_) expires_after(server_.options.timeout);
      waiting_ = false;
      return http::async_read_some(
          stream_, buffer_, *header_,
          [self = shared_from_this()](error_code next, std::size_t) { self->header_part(next); });
    }
    waiting_ = false;
    if (error) return fail(error);
    header_done();
  }

  void header_done() {
    const auto& head = header_->get();
    keep_alive_ = header_->keep_alive();
    version_ = head.version();
    const std::string path(view(head.target()));
    expires_after(server_.options.timeout);
    const bool stream_of_lines = head.method() == http::verb::post &&
                                 view(head[http::field::content_type]).starts_with("application/x-ndjson") &&
                                 ServeApi::is_rows_path(path, model_, learn_) && version_ == 11;
    if (stream_of_lines) {
      try {
        server_.api.allowed(request_of(head, ""));
      } catch (const Refusal& refusal) {
        return respond({refusal.status(), refusal_json(refusal.what())}, true);
      }
    } else if (const auto length = header_->content_length();
               length && *length > static_cast<std::uint64_t>(server_.options.max_body)) {
      return too_large();
    }
    if (beast::iequals(head[http::field::expect], "100-continue")) {
      static const std::string go_on = "HTTP/1.1 100 Continue\r\n\r\n";
      return net::async_write(stream_, net::buffer(go_on),
                              [self = shared_from_this(), stream_of_lines](error_code error, std::size_t) {
                                if (error) return self->fail(error);
                                stream_of_lines ? self->begin_lines() : self->read_body();
                              });
    }
    stream_of_lines ? begin_lines() : read_body();
  }

  template <class Head>
  ApiRequest request_of(const Head& head, std::string_view body) {
    return {view(head.method_string()),
            view(head.target()),
            body,
            view(head[http::field::content_type]),
            view(head[http::field::authorization]),
            view(head[http::field::host]),
            view(head[http::field::origin])};
  }

  void read_body() {
    request_.emplace(std::move(*header_));
    request_->body_limit(static_cast<std::uint64_t>(server_.options.max_body));
    http::async_read(stream_, buffer_, *request_, [self = shared_from_this()](error_code error, std::size_t) {
      if (error == http::error::body_limit) return self->too_large();
      if (error) return self->fail(error);
      const auto& request = self->request_->get();
      const std::string_view path = view(request.target());
      if (self->server_.text && path == "/v1/completions" && request.method() == http::verb::post)
        return self->complete(self->request_of(request, request.body()));
      self->respond(self->server_.api.answer(self->request_of(request, request.body())), false);
      self->server_.look_at_log();
    });
  }

  void too_large() {
    respond({413, refusal_json(fmt::format("a request has at most {} bytes (--max-body); send several, or lines as "
                                           "application/x-ndjson",
                                           server_.options.max_body))},
            true);
  }

  // A request that is not HTTP gets a sentence; one that did not arrive, or a client that has gone, gets nothing.
  void fail(error_code error) {
    if (error.category() != http::make_error_code(http::error::bad_method).category() ||
        error == http::error::end_of_stream || error == http::error::partial_message)
      return close();
    const bool long_header = error == http::error::header_limit || error == http::error::buffer_overflow;
    respond({long_header ? 431 : 400, refusal_json(long_header ? "the header of the request is too long"
                                                               : "this is not HTTP: " + error.message())},
            true);
  }

  void respond(ApiResponse answer, bool last) {
    response_.emplace(http::status(answer.status), version_);
    response_->set(http::field::server, "ttr");
    response_->set(http::field::content_type, answer.content_type);
    if (answer.status == 401) response_->set(http::field::www_authenticate, "Bearer");
    response_->body() = std::move(answer.body);
    response_->keep_alive(keep_alive_ && !last && !server_.ending);
    response_->prepare_payload();
    expires_after(server_.options.timeout);
    http::async_write(stream_, *response_, [self = shared_from_this()](error_code error, std::size_t) {
      if (error || self->response_->need_eof()) return self->close();
      self->read_header();
    });
  }

  // Text of a language model: it comes from another thread, a piece at a time or as a whole.
  void complete(const ApiRequest& request) {
    const auto start = std::chrono::steady_clock::now();
    try {
      server_.api.allowed(request);
      completing_ = true, pending_.clear(), all_read_ = false;
      expires_never();  // a model takes its time, and others wait in its queue
      kept_ = shared_from_this();
      asked_ = server_.text->ask(request.body, [known = weak_from_this(), start](TextService::Piece piece) {
        std::shared_ptr<Session> self = known.lock();
        if (!self) return;
        const auto executor = self->stream_.get_executor();  // whose thread is the last to have a session
        net::post(executor, [self = std::move(self), start, piece = std::move(piece)]() mutable {
          self->text_came(std::move(piece), start);
        });
      });
    } catch (const Refusal& refusal) {
      completing_ = false, kept_.reset();
      server_.metrics.request(refusal.status(), seconds_since(start));
      respond({refusal.status(), refusal_json(refusal.what())}, false);
    }
  }
  void text_came(TextService::Piece piece, std::chrono::steady_clock::time_point start) {
    if (!completing_) return;
    if (piece.last) {
      completing_ = false, kept_.reset();
      server_.metrics.request(piece.status, seconds_since(start));
    }
    if (!asked_.stream) return respond({piece.status, std::move(piece.text)}, false);
    if (!text_begun_)
      pending_ = fmt::format(
          "HTTP/1.1 200 OK\r\nServer: ttr\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n"
          "Transfer-Encoding: chunked\r\nConnection: {}\r\n\r\n",
          keep_alive_ ? "keep-alive" : "close");
    text_begun_ = true;
    add_chunk(piece.text);
    if (piece.last) pending_ += "0\r\n\r\n";
    if (pending_.size() > static_cast<std::size_t>(server_.options.max_body)) return give_up();  // nobody reads
    write_text();
  }
  void write_text() {
    if (writing_ || pending_.empty()) return;
    writing_ = true;
    out_.swap(pending_), pending_.clear();
    expires_after(server_.options.timeout);
    net::async_write(stream_, net::buffer(out_), [self = shared_from_this()](error_code error, std::size_t) {
      self->writing_ = false;
      if (error) return self->give_up();
      if (!self->pending_.empty()) return self->write_text();
      if (self->completing_) return self->expires_never();
      self->text_begun_ = false;
      if (!self->keep_alive_) return self->close();
      self->read_header();
    });
  }
  // The client has gone.
  void give_up() {
    if (completing_) server_.text->cancel(asked_.number);
    completing_ = text_begun_ = false;
    close();
    kept_.reset();  // the caller has another
  }

  // A stream of lines: reading and writing go on independently, since many clients send all before they read anything.
  void begin_lines() {
    lines_.emplace(std::move(*header_));
    lines_->body_limit(no_limit);
    pending_ = fmt::format(
        "HTTP/1.1 200 OK\r\nServer: ttr\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n"
        "Connection: {}\r\n\r\n",
        keep_alive_ ? "keep-alive" : "close");
    text_.clear(), block_.resize(stream_block), all_read_ = lines_failed_ = reading_ = false;
    write_lines();
    read_lines();
  }

  void read_lines() {
    if (reading_ || all_read_ || pending_.size() > static_cast<std::size_t>(server_.options.max_body)) return;
    if (lines_->is_done()) return lines_read(http::error::end_of_stream);
    reading_ = true;
    lines_->get().body().data = block_.data(), lines_->get().body().size = block_.size();
    expires_after(server_.options.idle_timeout);
    http::async_read_some(stream_, buffer_, *lines_, [self = shared_from_this()](error_code error, std::size_t) {
      self->reading_ = false;
      self->lines_read(error == http::error::need_buffer ? error_code() : error);
    });
  }

  void lines_read(error_code error) {
    if (error && error != http::error::end_of_stream) return close();
    text_.append(block_.data(), error ? 0 : block_.size() - lines_->get().body().size);
    all_read_ = lines_->is_done();
    const std::size_t end = all_read_ ? text_.size() : text_.rfind('\n') + 1;  // npos + 1 is 0
    if (end > 0 && !lines_failed_) {
      try {
        add_chunk(server_.api.lines(model_, learn_, std::string_view(text_).substr(0, end)));
      } catch (const std::exception& refusal) {
        add_chunk(refusal_json(refusal.what()));
        lines_failed_ = true;
      }
      server_.look_at_log();
    }
    text_.erase(0, end);
    if (text_.size() > static_cast<std::size_t>(server_.options.max_body) && !lines_failed_) {
      add_chunk(refusal_json(fmt::format("a line has at most {} bytes (--max-body)", server_.options.max_body)));
      lines_failed_ = true;
    }
    if (lines_failed_) all_read_ = true, keep_alive_ = false;  // the rest is not looked at
    if (all_read_) pending_ += "0\r\n\r\n";
    write_lines();
    read_lines();
  }

  void add_chunk(const std::string& text) {
    if (!text.empty()) pending_ += fmt::format("{:x}\r\n{}\r\n", text.size(), text);
  }

  void write_lines() {
    if (writing_ || pending_.empty()) return;
    writing_ = true;
    out_.swap(pending_), pending_.clear();
    if (!reading_) expires_after(server_.options.idle_timeout);
    net::async_write(stream_, net::buffer(out_), [self = shared_from_this()](error_code error, std::size_t) {
      self->writing_ = false;
      if (error) return self->close();
      if (!self->pending_.empty()) {
        self->write_lines();
        return self->read_lines();
      }
      if (!self->all_read_) return self->read_lines();
      self->lines_.reset();
      if (!self->keep_alive_) return self->close();
      self->read_header();
    });
  }

  tcp::socket stream_;
  Server& server_;
  Worker& worker_;
  Worker::Clock::time_point deadline_ = Worker::Clock::time_point::max();
  beast::flat_buffer buffer_{64 << 10};
  std::optional<http::request_parser<http::empty_body>> header_;
  std::optional<http::request_parser<http::string_body>> request_;
  std::optional<http::request_parser<http::buffer_body>> lines_;
  std::optional<http::response<http::string_body>> response_;
  bool keep_alive_ = true, waiting_ = true;
  unsigned version_ = 11;
  // A stream of lines.
  std::string model_, text_, pending_, out_;  // text_: the line that is not complete; pending_: what is to be written
  std::vector<char> block_;
  bool learn_ = false, reading_ = false, writing_ = false, all_read_ = false, lines_failed_ = false;
  // Text of a language model, in pending_ and out_ too.
  TextService::Asked asked_;
  std::shared_ptr<Session> kept_;  // itself, while no reading or writing has it
  bool completing_ = false, text_begun_ = false;
};

void Worker::look_at_deadlines() {
  const Clock::time_point now = Clock::now();
  for (Session* session : std::vector<Session*>(sessions_.begin(), sessions_.end())) session->close_if_late(now);
  tick_.expires_after(std::chrono::milliseconds(250));
  tick_.async_wait([this](error_code error) {
    if (!error) look_at_deadlines();
  });
}

class Listener : public std::enable_shared_from_this<Listener> {
 public:
  Listener(std::vector<std::unique_ptr<Worker>>& workers, const tcp::endpoint& at, Server& server)
      : workers_(workers), acceptor_(workers.front()->context()), server_(server) {
    acceptor_.open(at.protocol());
    acceptor_.set_option(net::socket_base::reuse_address(true));
    acceptor_.bind(at);
    acceptor_.listen();
  }
  int port() const { return acceptor_.local_endpoint().port(); }
  void accept() {
    Worker& worker = *workers_[next_++ % workers_.size()];
    acceptor_.async_accept(
        worker.context(), [self = shared_from_this(), &worker](error_code error, tcp::socket socket) {
          if (error == net::error::operation_aborted || !self->acceptor_.is_open()) return;
          if (!error) self->take(std::move(socket), worker);
          else std::this_thread::sleep_for(std::chrono::milliseconds(20));  // no descriptor is free: one will be
          self->accept();
        });
  }
  void end() {
    net::post(acceptor_.get_executor(), [self = shared_from_this()] {
      error_code ignored;
      self->acceptor_.close(ignored);
    });
  }

 private:
  void take(tcp::socket socket, Worker& worker) {
    error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    if (server_.metrics.connections < server_.options.max_connections)
      return std::make_shared<Session>(std::move(socket), server_, worker)->start();
    ++server_.metrics.refused_connections;
    static const std::string body = refusal_json("there are too many connections (--max-connections); try again");
    static const std::string full = fmt::format(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\nConnection: "
        "close\r\n"
        "Content-Length: {}\r\n\r\n{}",
        body.size(), body);
    socket.non_blocking(true, ignored);  // what does not fit into its buffer is lost, and nobody waits
    socket.write_some(net::buffer(full), ignored);
    socket.shutdown(tcp::socket::shutdown_send, ignored);
  }

  std::vector<std::unique_ptr<Worker>>& workers_;
  std::size_t next_ = 0;
  tcp::acceptor acceptor_;
  Server& server_;
};

std::string read_token(const ServeOptions& options, const net::ip::address& address) {
  if (options.token_file.empty()) {
    if (!address.is_loopback())
      throw Error(fmt::format("--host {} can be reached from other machines, so a token is needed; write one into a "
                              "file (head -c 24 /dev/urandom | base64 > token) and give --token-file token",
                              options.host),
                  "--token-file");
    return "";
  }
  std::ifstream file(options.token_file);
  std::string token;
  if (!std::getline(file, token))
    throw Error(fmt::format("cannot read a token from '{}'; its first line is one", options.token_file),
                "--token-file");
  if (token.size() < 16)
    throw Error(
        fmt::format("the token in '{}' has {} characters; give at least 16", options.token_file, token.size()),
        "--token-file");
  return token;
}

void check(const ServeOptions& o) {
  const auto range = [](std::int64_t number, std::int64_t low, std::int64_t high, const char* option) {
    if (number < low || number > high)
      throw Error(fmt::format("{} {} is out of range; give {} to {}", option, number, low, high), option);
  };
  range(o.port, 0, 65535, "--port");
  range(o.threads, 0, 256, "--threads");
  range(o.max_body, 1024, std::int64_t{1} << 30, "--max-body");
  range(o.max_connections, 1, 100000, "--max-connections");
  range(o.max_models, 1, 10000000, "--max-models");
  range(o.max_log, 4096, std::int64_t{1} << 40, "--max-log");
  range(o.timeout, 1, 86400, "--timeout");
  range(o.idle_timeout, 1, 86400, "--idle-timeout");
}

// Writes the models when the log has become long, so that no request waits for it.
void save_when_wanted(Server& server) {
  std::unique_lock lock(server.mutex);
  for (;;) {
    server.changed.wait(lock, [&] { return server.save_wanted || server.stop_saver; });
    if (server.stop_saver) return;
    server.save_wanted = false;
    lock.unlock();
    try {
      server.store.save_all();
    } catch (const Error& error) {
      tell("ttr: {}\n", error.what());
      std::this_thread::sleep_for(std::chrono::seconds(1));  // a full disk stays full for a while
    }
    lock.lock();
  }
}

void serve(const ServeOptions& options, Server& server, const tcp::endpoint& at, int threads) {
  std::vector<std::unique_ptr<Worker>> workers;
  workers.reserve(static_cast<std::size_t>(threads));
  for (int i = 0; i < threads; ++i) workers.push_back(std::make_unique<Worker>());
  std::shared_ptr<Listener> listener;
  try {
    listener = std::make_shared<Listener>(workers, at, server);
  } catch (const boost::system::system_error& error) {
    throw Error(fmt::format("cannot listen on {} port {}: {}", options.host, options.port, error.code().message()),
                "--port");
  }
  listener->accept();
  const std::string address = at.address().to_string(),
                    where = fmt::format("http://{}:{}", at.address().is_v6() ? "[" + address + "]" : address,
                                        listener->port());
  if (server.store.cut_off() > 0)
    tell("ttr: left out {} bytes at the end of the log: a record that was not complete\n", server.store.cut_off());
  if (options.json)
    print_out(Json::object()
                  .set("url", where)
                  .set("models", server.store.count())
                  .set("replayed_rows", server.store.replayed())
                  .dump(-1) +
              "\n");
  else
    print_out(fmt::format("Serving {} in '{}' at {}{}. Ctrl-C saves and ends.\n",
                          counted(static_cast<std::int64_t>(server.store.count()), "model"), options.folder, where,
                          server.store.replayed() > 0
                              ? fmt::format(", after {} of the log", counted(server.store.replayed(), "row"))
                              : ""));
  std::thread saver([&] { save_when_wanted(server); });
  std::vector<std::thread> team;
  team.reserve(static_cast<std::size_t>(threads));
  for (const std::unique_ptr<Worker>& worker : workers) team.emplace_back([&one = *worker] { one.run(); });

  pollfd wait = {interrupt_descriptor(), POLLIN, 0};
  while (interrupted() == 0) ::poll(&wait, 1, 1000);

  listener->end();
  if (server.text) server.text->end();  // its thread holds sessions
  {
    std::unique_lock lock(server.mutex);
    server.ending = true;
    for (Session* session : server.sessions) session->end();
    server.changed.wait_for(lock, usual_patience, [&] { return server.sessions.empty(); });
    server.stop_saver = true;
    server.changed.notify_all();
  }
  for (const std::unique_ptr<Worker>& worker : workers) worker->context().stop();
  for (std::thread& one : team) one.join();
  saver.join();
}

void serve_until_the_end(const ServeOptions& options) {
  error_code wrong;
  const net::ip::address address =
      net::ip::make_address(options.host == "localhost" ? "127.0.0.1" : options.host, wrong);
  if (wrong)
    throw Error(fmt::format("--host '{}' is not an address, such as 127.0.0.1, ::1 or 0.0.0.0", options.host),
                "--host");
  const std::string token = read_token(options, address);
  ModelStore store(options.folder, options.sync, {static_cast<std::size_t>(options.max_models), options.max_log});
  std::unique_ptr<TextService> text;
  if (!options.text.model.empty()) {
    if (!options.open_text) throw Error("this program was built without language models (TTR_LANGUAGE)", "--model");
    text = options.open_text(options.text);
  }
  ServeMetrics metrics;
  ServeApi api(store, metrics, token, text.get());
  Server server{options, store, metrics, api, text.get(), {}, {}, {}};
  const int threads =
      options.threads > 0 ? options.threads : std::max(2, static_cast<int>(std::thread::hardware_concurrency()));
  serve(options, server, {address, static_cast<unsigned short>(options.port)}, threads);
  store.save_all();
  store.close();
  if (!options.json)
    print_out(fmt::format("Saved {} in '{}'.\n", counted(static_cast<std::int64_t>(store.count()), "model"),
                          options.folder));
}

}  // namespace

int run_serve(const ServeOptions& options) {
  check(options);
  const InterruptGuard guard;
  // Long enough to write some hundred models. What is not written then is in the log, as after a power cut.
  if (!run_aside([options] { serve_until_the_end(options); }, std::chrono::milliseconds(700)))
    tell("Ended before all was saved; the log in '{}' has the rest, which the next start learns.\n", options.folder);
  return 0;
}

}  // namespace ttr::cli
