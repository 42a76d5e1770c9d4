#include "apps/cli/terminal.h"

#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "base/error.h"

namespace coppice::cli {

namespace {

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may only touch lock-free atomics");

void OnInterrupt(int) {
  interrupted = true;
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

// The approximate width of a UTF-8 text: one column per character.
size_t Width(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string Pad(const std::string& text, size_t width, bool right) {
  const std::string space(width - std::min(width, Width(text)), ' ');
  return right ? space + text : text + space;
}

}  // namespace

bool StderrIsTerminal() { return isatty(STDERR_FILENO) == 1; }

bool StdinIsTerminal() { return isatty(STDIN_FILENO) == 1; }

namespace {

// What of stdin there is, once there is any; nullopt at its end. Throws as ReadStdin.
std::optional<std::string> ReadPart() {
  std::array<char, 1 << 16> part;
  while (true) {
    // A signal ends the wait but not a read(), and one between the check and the wait ends neither.
    pollfd input{STDIN_FILENO, POLLIN, 0};
    if (interrupted) throw Cancelled();
    if (poll(&input, 1, 200) <= 0) continue;
    const ssize_t size = read(STDIN_FILENO, part.data(), part.size());
    if (size == 0) return std::nullopt;
    if (size > 0) return std::string(part.data(), static_cast<size_t>(size));
    if (errno != EINTR && errno != EAGAIN) throw Error("stdin: cannot read: {}", std::strerror(errno));
  }
}

}  // namespace

std::string ReadStdin() {
  std::string text;
  while (const std::optional<std::string> part = ReadPart()) text += *part;
  return text;
}

ProgressLine::ProgressLine(std::string label, double total, std::string unit)
    : label_(std::move(label)), total_(total), unit_(std::move(unit)) {}

ProgressLine::~ProgressLine() { Clear(); }

void ProgressLine::Update(double done, const std::string& note, std::optional<double> left) {
  const auto now = std::chrono::steady_clock::now();
  if (!start_) {
    start_ = last_drawn_ = now;
    done_at_start_ = done;
  }
  if (!StderrIsTerminal() || now - last_drawn_ < std::chrono::milliseconds(100)) return;
  last_drawn_ = now;
  drawn_ = true;
  const double elapsed = std::chrono::duration<double>(now - *start_).count();
  const double share = total_ > 0 ? std::clamp(done / total_, 0.0, 1.0) : 0;
  const int filled = static_cast<int>(share * 24);
  const std::string bar =
      std::string(static_cast<size_t>(filled), '#') + std::string(static_cast<size_t>(24 - filled), '-');
  const double advanced = total_ > 0 ? share - done_at_start_ / total_ : 0;
  if (!left && advanced > 0.01) left = elapsed * (1 - share) / advanced;
  const std::string eta = left ? fmt::format("ETA {:.0f} s", *left) : "";
  const std::string count =
      unit_.empty() ? "" : fmt::format("  {} {}/{}", unit_, static_cast<int>(done), static_cast<int>(total_));
  fmt::print(stderr, "\r\033[K{}{}  [{}] {:3.0f} %  {}{}{}", label_, count, bar, 100 * share, eta,
             note.empty() || eta.empty() ? "" : "  ", note);
  std::fflush(stderr);
}

void ProgressLine::Clear() {
  if (!drawn_) return;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
  drawn_ = false;
}

Table::Table(std::vector<std::string> header, std::vector<bool> right) : right_(std::move(right)) {
  rows_.push_back(std::move(header));
}

void Table::Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

std::vector<size_t> Table::Widths() const {
  std::vector<size_t> widths(rows_.front().size());
  for (const auto& row : rows_) {
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], Width(row[c]));
  }
  return widths;
}

std::string Table::Text() const {
  const std::vector<size_t> widths = Widths();
  std::string text;
  for (size_t r = 0; r < rows_.size(); ++r) {
    std::string line;
    for (size_t c = 0; c < rows_[r].size(); ++c)
      line += (c ? "  " : "") + Pad(rows_[r][c], widths[c], right_[c]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
    if (r > 0) continue;
    for (size_t c = 0; c < widths.size(); ++c) text += (c ? "  " : "") + std::string(widths[c], '-');
    text += '\n';
  }
  return text;
}

std::string Table::Markdown() const {
  const std::vector<size_t> widths = Widths();
  std::string text;
  for (size_t r = 0; r < rows_.size(); ++r) {
    text += '|';
    for (size_t c = 0; c < rows_[r].size(); ++c) text += ' ' + Pad(rows_[r][c], widths[c], right_[c]) + " |";
    text += '\n';
    if (r > 0) continue;
    text += '|';
    for (size_t c = 0; c < widths.size(); ++c)
      text += std::string(widths[c] + 1, '-') + (right_[c] ? ":|" : "-|");
    text += '\n';
  }
  return text;
}

std::string BytesText(int64_t bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(units)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", value, units[unit]);
}

const std::atomic<bool>& Interrupted() { return interrupted; }

void InstallInterruptHandler(AfterInterrupt after) {
  if (after == AfterInterrupt::kGoOn) {
    std::signal(SIGINT, [](int) { interrupted = true; });
    return;
  }
  for (const int number : {SIGINT, SIGTERM}) {
    if (std::signal(number, OnInterrupt) == SIG_IGN) std::signal(number, SIG_IGN);  // as nohup and shells ask
  }
}

bool ForgetInterrupt() { return interrupted.exchange(false); }

std::optional<std::string> LineReader::Next() {
  while (true) {
    if (const size_t end = read_.find('\n'); end != std::string::npos) {
      std::string line = read_.substr(0, end);
      read_.erase(0, end + 1);
      return line;
    }
    if (ended_) return read_.empty() ? std::nullopt : std::optional(std::exchange(read_, ""));
    std::optional<std::string> part;
    try {
      part = ReadPart();
    } catch (const Cancelled&) {
      ForgetInterrupt();
      read_.clear();
      if (StdinIsTerminal()) fmt::print(stderr, "\n");
      return "";
    }
    ended_ = !part;
    if (part) read_ += *part;
  }
}

}  // namespace coppice::cli
