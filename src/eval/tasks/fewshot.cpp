// The eight five-shot tasks of the papers (COPA, PIQA, WinoGrande, MathQA, BoolQ, CB, WiC, WSC). Choices are
// scored by their likelihood as in lm-evaluation-harness 0.4.8: its templates, its spaces (two before COPA's
// choices), acc and acc_norm. https://github.com/EleutherAI/lm-evaluation-harness, lm_eval/tasks (MIT).
//
// Data: FOLDER/COPA.train32.jsonl for the shots and another FOLDER/COPA.*.jsonl for the questions, and
// likewise for the other tasks. Without a file of shots the last five rows are the shots. The shots of each
// question are chosen at random as in the harness, but from the run's seed.
#include <algorithm>
#include <filesystem>
#include <optional>

#include "eval/data.h"
#include "eval/metrics/python_text.h"
#include "eval/random.h"
#include "eval/task.h"

namespace coppice {

namespace {

constexpr size_t kShots = 5;

// A question in the harness's form.
struct Question {
  std::string text;
  std::vector<std::string> choices;
  int gold = 0;
  // WinoGrande: the choices are beginnings, and this text follows each.
  std::optional<std::string> ending = std::nullopt;
};

struct Kind {
  std::string_view name;  // of the task, and, whatever its case, of its files
  Question (*question)(const DataRow& row);
};

int GoldOf(const DataRow& row, int64_t gold, size_t choices) {
  if (gold < 0 || gold >= static_cast<int64_t>(choices))
    throw Error("[eval] {}: the right choice is {}, of {}", row.source(), gold, choices);
  return static_cast<int>(gold);
}

Question YesNo(const DataRow& row, std::string text) {
  return {std::move(text), {"no", "yes"}, GoldOf(row, row.Whole("label"), 2)};
}

// choice[0].lower() + choice[1:]
std::string LowerFirst(const std::string& text) {
  const std::u32string letters = ToCodePoints(text);
  return letters.empty() ? "" : ToUtf8(Lower(letters.substr(0, 1)) + letters.substr(1));
}

Question Copa(const DataRow& row) {
  const std::string asked = row.Text("question");
  if (asked != "cause" && asked != "effect")
    throw Error("[eval] {}: 'question' is neither cause nor effect", row.source());
  std::u32string premise = Strip(ToCodePoints(row.Text("premise")));
  if (!premise.empty()) premise.pop_back();  // the full stop
  return {ToUtf8(premise) + (asked == "cause" ? " because" : " therefore"),
          {" " + LowerFirst(row.Text("choice1")), " " + LowerFirst(row.Text("choice2"))},
          GoldOf(row, row.Whole("label"), 2)};
}

Question Piqa(const DataRow& row) {
  return {"Question: " + row.Text("goal") + "\nAnswer:",
          {row.Text("sol1"), row.Text("sol2")},
          GoldOf(row, row.Whole("label"), 2)};
}

Question BoolQ(const DataRow& row) {
  return YesNo(row, row.Text("passage") + "\nQuestion: " + row.Text("question") + "?\nAnswer:");
}

Question Cb(const DataRow& row) {
  // By name in SuperGLUE's files, by number in others.
  const std::vector<std::string> names = {"entailment", "contradiction", "neutral"};
  const std::string label = row.Text("label");
  int64_t gold = -1;
  for (size_t i = 0; i < names.size(); ++i) {
    if (label == names[i] || label == std::to_string(i)) gold = static_cast<int64_t>(i);
  }
  return {
      row.Text("premise") + "\nQuestion: " + row.Text("hypothesis") + ". True, False, or Neither?\nAnswer:",
      {"True", "False", "Neither"},
      GoldOf(row, gold, 3)};
}

Question Wic(const DataRow& row) {
  const std::u32string first = ToCodePoints(row.Text("sentence1"));
  const int64_t begin = row.Whole("start1"), end = row.Whole("end1");
  if (begin < 0 || end < begin || end > static_cast<int64_t>(first.size()))
    throw Error("[eval] {}: the word lies at {} to {} of {} characters", row.source(), begin, end,
                first.size());
  const std::string word = ToUtf8(first.substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
  return YesNo(row, "Sentence 1: " + row.Text("sentence1") + "\nSentence 2: " + row.Text("sentence2") +
                        "\nQuestion: Is the word '" + word +
                        "' used in the same way in the two sentences above?\nAnswer:");
}

std::string Replaced(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

// Removes the spaces that a word-by-word text has around punctuation: lm_eval.utils.general_detokenize.
std::string Detokenized(std::string text) {
  text = Replaced(std::move(text), " n't", "n't");
  text = Replaced(std::move(text), " )", ")");
  text = Replaced(std::move(text), "( ", "(");
  text = Replaced(std::move(text), "\" ", "\"");
  text = Replaced(std::move(text), " \"", "\"");
  for (const std::string_view mark : {"'", ".", ","})
    text = Replaced(std::move(text), " " + std::string(mark), mark);
  return text;
}

// The text with the pronoun between asterisks.
Question Wsc(const DataRow& row) {
  const DataRow target = row.Has("target") ? row.Part("target") : row;
  const std::u32string text = ToCodePoints(row.Text("text"));
  const std::string pronoun = target.Text("span2_text");
  const std::vector<std::u32string> words = SplitWords(text);
  const int64_t index = target.Whole("span2_index");
  if (index < 0 || index > static_cast<int64_t>(words.size()))
    throw Error("[eval] {}: span2_index is {}, of {} words", row.source(), index, words.size());
  std::u32string before;
  for (int64_t i = 0; i < index; ++i) before += (i > 0 ? U" " : U"") + words[static_cast<size_t>(i)];
  const size_t after = std::min(before.size() + ToCodePoints(pronoun).size() + 1, text.size());
  const std::string passage = Detokenized(ToUtf8(before) + " *" + pronoun + "*" + ToUtf8(text.substr(after)));
  return YesNo(row, "Passage: " + passage + "\nQuestion: In the passage above, does the pronoun \"*" +
                        pronoun + "*\" refer to \"*" + target.Text("span1_text") + "*\"?\nAnswer:");
}

// The texts between consecutive marks; none if a mark is missing. (A regular expression of the standard
// library would recurse over a long text.)
std::vector<std::string> Between(std::string_view text, const std::vector<std::string_view>& marks) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t i = 0; i < marks.size(); ++i) {
    const size_t at = text.find(marks[i], begin);
    if (at == std::string_view::npos) return {};
    if (i > 0) parts.emplace_back(text.substr(begin, at - begin));
    begin = at + marks[i].size();
  }
  return parts;
}

// Rows of the data set, or of its form as an instruction: "... sentence: S\n\nOption1: a Option2: b Answer
// format: ...".
Question WinoGrande(const DataRow& row) {
  std::string sentence, options[2];
  if (row.Has("sentence")) {
    sentence = row.Text("sentence");
    options[0] = row.Text("option1");
    options[1] = row.Text("option2");
  } else {
    const std::string text = row.Text("instruction");
    const std::vector<std::string> parts =
        Between(text, {"given sentence: ", "\n\nOption1: ", " Option2: ", " Answer format:"});
    if (parts.empty()) throw Error("[eval] {}: 'instruction' is no WinoGrande question", row.source());
    sentence = parts[0];
    options[0] = parts[1];
    options[1] = parts[2];
  }
  const size_t blank = sentence.find('_');
  if (blank == std::string::npos) throw Error("[eval] {}: the sentence has no blank _", row.source());
  const std::string answer = row.Text("answer");
  const int gold = GoldOf(row, answer.empty() ? -1 : answer.back() - '1', 2);  // "2", or "option2"
  const std::string head = sentence.substr(0, blank);
  return {head + options[gold],
          {head + options[0], head + options[1]},
          gold,
          ToUtf8(Strip(ToCodePoints(std::string_view(sentence).substr(blank + 1))))};
}

// The matches of "[abcd] \) .*?, |e \) .*?$" in "a ) 38 , b ) 27.675 , ... e ) none", without the letter and
// the end.
std::vector<std::string> MathChoices(std::string_view options) {
  std::vector<std::string> choices;
  for (size_t at = 0; at + 4 <= options.size(); ++at) {
    if (options[at] < 'a' || options[at] > 'e' || options.substr(at + 1, 3) != " ) ") continue;
    const size_t comma = options[at] == 'e' ? options.size() : options.find(", ", at + 4);
    if (comma == std::string_view::npos) continue;
    std::string choice(options.substr(at + 4, comma - at - 4));
    choice.erase(choice.find_last_not_of(" ,") + 1);
    choices.push_back(std::move(choice));
    at = comma + 1;
  }
  return choices;
}

Question MathQa(const DataRow& row) {
  std::string problem, options, answer;
  if (row.Has("Problem")) {
    problem = row.Text("Problem");
    options = row.Text("options");
    answer = row.Text("correct");
  } else {
    // The data set in its form as an instruction, in which a to e of the options are capitals.
    const std::string text = row.Text("instruction");
    constexpr std::string_view kLabel = " The options: ";
    const size_t label = text.find(kLabel);
    if (label == std::string::npos)
      throw Error("[eval] {}: 'instruction' is no MathQA question", row.source());
    problem = text.substr(0, label);
    options = text.substr(label + kLabel.size());
    answer = row.Text("answer");
    for (std::string* part : {&options, &answer}) {
      for (char& c : *part) c = c >= 'A' && c <= 'E' ? static_cast<char>(c - 'A' + 'a') : c;
    }
  }
  const std::vector<std::string> choices = MathChoices(options);
  return {"Question: " + problem + "\nAnswer:", choices,
          GoldOf(row, answer.empty() ? -1 : answer[0] - 'a', choices.size())};
}

constexpr Kind kKinds[] = {{"copa", Copa},     {"piqa", Piqa},   {"winogrande", WinoGrande},
                           {"mathqa", MathQa}, {"boolq", BoolQ}, {"cb", Cb},
                           {"wic", Wic},       {"wsc", Wsc}};

// A question with its answer, as a shot.
std::string Shown(const Question& question) {
  const std::string& answer = question.choices[static_cast<size_t>(question.gold)];
  return question.text + " " + question.ending.value_or(answer) + "\n\n";
}

Sample MakeSample(const Question& question, const std::string& shots) {
  Sample sample;
  sample.kind = SampleKind::kChoose;
  sample.gold = question.gold;
  for (const std::string& choice : question.choices) {
    const auto length = static_cast<double>(std::max<size_t>(ToCodePoints(choice).size(), 1));
    if (question.ending) {
      sample.choices.push_back({shots + choice, " " + *question.ending, length});
    } else {
      sample.choices.push_back({shots + question.text, " " + choice, length});
    }
  }
  return sample;
}

struct Files {
  std::string shots;  // may be empty
  std::string questions;
};

// Files "<name>.<anything>.jsonl" of the data folders and their folders `tasks`; of several, the first by
// name.
Files FindFiles(const TaskRequest& request, std::string_view task) {
  Files files;
  std::error_code ignored;
  for (const std::string& folder : request.data) {
    for (const std::string& place : {folder, folder + "/tasks"}) {
      std::vector<std::string> paths;
      for (const auto& entry : std::filesystem::directory_iterator(place, ignored))
        paths.push_back(entry.path().string());
      std::sort(paths.begin(), paths.end());
      for (const std::string& path : paths) {
        const std::string name = LowerUtf8(std::filesystem::path(path).filename().string());
        if (!name.starts_with(std::string(task) + ".") || !name.ends_with(".jsonl")) continue;
        std::string& slot = name.find(".train") != std::string::npos ? files.shots : files.questions;
        if (slot.empty()) slot = path;
      }
    }
  }
  if (files.questions.empty())
    throw MissingData("fewshot/{}: no {}.*.jsonl in the data folders, nor in tasks below them", task, task);
  return files;
}

std::vector<Question> QuestionsOf(const Kind& kind, const std::string& path) {
  std::vector<Question> questions;
  for (const DataRow& row : ReadRows(path)) questions.push_back(kind.question(row));
  return questions;
}

std::vector<Sample> SamplesOf(const Kind& kind, const TaskRequest& request) {
  const Files files = FindFiles(request, kind.name);
  std::vector<Question> questions = QuestionsOf(kind, files.questions);
  std::vector<Question> shots;
  if (!files.shots.empty()) {
    shots = QuestionsOf(kind, files.shots);
  } else if (questions.size() > kShots) {
    shots.assign(questions.end() - kShots, questions.end());
    questions.resize(questions.size() - kShots);
  }
  if (shots.size() < kShots) throw Error("[eval] {}: too few rows for {} shots", files.questions, kShots);
  std::vector<Sample> samples;
  for (size_t i = 0; i < questions.size() && static_cast<int64_t>(i) < request.samples; ++i) {
    Random random = RandomFor(request.seed, kind.name, 0, static_cast<int64_t>(i));
    std::string shown;
    for (const int64_t s : random.Distinct(kShots, static_cast<int64_t>(shots.size())))
      shown += Shown(shots[static_cast<size_t>(s)]);
    samples.push_back(MakeSample(questions[i], shown));
    samples.back().id = std::to_string(i);
  }
  return samples;
}

}  // namespace

void AddFewShot(std::vector<TaskInfo>& tasks) {
  for (const Kind& kind : kKinds) {
    tasks.push_back({.name = "fewshot/" + std::string(kind.name),
                     .about = "five shots, the likeliest choice",
                     .needs_data = true,
                     .samples = [&kind](const TaskRequest& request) { return SamplesOf(kind, request); }});
  }
}

}  // namespace coppice
