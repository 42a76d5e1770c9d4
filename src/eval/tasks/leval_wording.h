// L-Eval's own prompts, read from the user's copy of its repository. They are under the GPL, so this program
// does not hold them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eval/task.h"

namespace coppice {

struct LEvalWording {
  // What its authors' programs look for in a task's name ("gsm", "topic"; "exam" is every other closed task),
  // and the system prompt.
  std::vector<std::pair<std::string, std::string>> systems;
  std::string question;  // around {document} and {inst}, of tasks that are neither gsm, codeU nor topic

  // The system prompt of a task; "" if there is none.
  std::string_view System(std::string_view task) const;
};

// From Baselines/LEval_config.py and Baselines/llama2-chat-test.py below a data folder; nothing if they are
// not there. Throws Error, naming the file, if they hold no prompts.
std::optional<LEvalWording> FindLEvalWording(const TaskRequest& request);

// The prompts of the two files' texts, for tests. `source` names them in errors.
LEvalWording ParseLEvalWording(std::string_view config, std::string_view program, const std::string& source);

}  // namespace coppice
