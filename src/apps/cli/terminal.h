// Terminal output: aligned tables, a progress line with an estimate, and Ctrl-C.
#pragma once

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coppice::cli {

// Whether stderr is a terminal; progress and summaries are printed only then.
bool StderrIsTerminal();

bool StdinIsTerminal();
// All of stdin. Empty if it is closed. Throws Error if it cannot be read, and Cancelled at an interrupt.
std::string ReadStdin();

// One line on the terminal, rewritten at most ten times a second: "prefill  layer 12/32  [####----]  38 %
// ETA 41 s". Silent where stderr is no terminal.
class ProgressLine {
 public:
  // `unit` names what is counted; "" shows only the share. The time and the estimate count from the first
  // Update.
  ProgressLine(std::string label, double total, std::string unit);
  ~ProgressLine();  // clears the line
  // `note` is shown at the end of the line. `left`: seconds to the end, where the caller knows better than
  // the line, which takes every part of the work for equally fast.
  void Update(double done, const std::string& note = "", std::optional<double> left = std::nullopt);
  void SetLabel(std::string label) { label_ = std::move(label); }
  void Clear();

 private:
  std::string label_;
  double total_;
  std::string unit_;
  std::optional<std::chrono::steady_clock::time_point> start_;
  double done_at_start_ = 0;
  std::chrono::steady_clock::time_point last_drawn_;
  bool drawn_ = false;
};

// Rows of cells under a header; numbers are aligned to the right where `right[column]`.
class Table {
 public:
  Table(std::vector<std::string> header, std::vector<bool> right);
  void Add(std::vector<std::string> row);
  std::string Text() const;      // columns padded, for a terminal
  std::string Markdown() const;  // the same as a Markdown table that lines up

 private:
  std::vector<size_t> Widths() const;
  std::vector<std::vector<std::string>> rows_;  // the header first
  std::vector<bool> right_;
};

// "1.73 GiB", "512 B".
std::string BytesText(int64_t bytes);

// Set by SIGINT or SIGTERM after InstallInterruptHandler(); a second signal ends the process at once. With
// kGoOn SIGINT alone sets it, each time.
const std::atomic<bool>& Interrupted();
enum class AfterInterrupt { kEnd, kGoOn };
void InstallInterruptHandler(AfterInterrupt after = AfterInterrupt::kEnd);
// Unsets it; returns whether it was set.
bool ForgetInterrupt();

// Lines of stdin.
class LineReader {
 public:
  // The next line without its end; nullopt behind the last. An interrupt while it waits drops what the line
  // has so far, is forgotten, and gives an empty line.
  std::optional<std::string> Next();

 private:
  std::string read_;
  bool ended_ = false;
};

}  // namespace coppice::cli
