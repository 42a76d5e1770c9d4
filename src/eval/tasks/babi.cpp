// bAbI's tasks with one to three supporting facts, their stories spread over a long text as BABILong does
// (https://github.com/booydar/babilong, babilong/prompts.py; Apache-2.0). The stories are the user's:
// FOLDER/qa1_single-supporting-fact_train.txt, or FOLDER/babi/...
#include <fmt/core.h>

#include <algorithm>

#include "eval/data.h"
#include "eval/random.h"
#include "eval/task.h"

namespace coppice {

namespace {

struct Variant {
  std::string_view name;
  std::string_view file;
  std::string_view instruction, examples, form;
};

constexpr std::string_view kItems =
    "If a person got an item in the first location and travelled to the second location the item is also in "
    "the second "
    "location. If a person dropped an item in the first location and moved to the second location the item "
    "remains in the "
    "first location.";

constexpr Variant kVariants[] = {
    {"qa1", "qa1_single-supporting-fact",
     "I will give you context with the facts about positions of different persons hidden in some random text "
     "and a "
     "question. You need to answer the question based only on the information from the facts. If a person "
     "was in different "
     "locations, use the latest location to answer the question.",
     "<example>\nCharlie went to the hallway. Judith come back to the kitchen. Charlie travelled to balcony. "
     "Where is "
     "Charlie?\nAnswer: The most recent location of Charlie is balcony.\n</example>\n\n<example>\nAlan moved "
     "to the garage. "
     "Charlie went to the beach. Alan went to the shop. Rouse travelled to balcony. Where is Alan?\nAnswer: "
     "The most recent "
     "location of Alan is shop.\n</example>",
     "Always return your answer in the following format: The most recent location of ’person’ is ’location’. "
     "Do not write "
     "anything else after that."},
    {"qa2", "qa2_two-supporting-facts",
     "I give you context with the facts about locations and actions of different persons hidden in some "
     "random text and a "
     "question.You need to answer the question based only on the information from the facts.\n",
     "<example>\nCharlie went to the kitchen. Charlie got a bottle. Charlie moved to the balcony. Where is "
     "the "
     "bottle?\nAnswer: The bottle is in the balcony.\n</example>\n<example>\nAlan moved to the garage. Alan "
     "got a screw "
     "driver. Alan moved to the kitchen. Where is the screw driver?\nAnswer: The screw driver is in the "
     "kitchen.\n</example>",
     "Always return your answer in the following format: The ’item’ is in ’location’. Do not write anything "
     "else after "
     "that."},
    {"qa3", "qa3_three-supporting-facts",
     "I give you context with the facts about locations and actions of different persons hidden in some "
     "random text and a "
     "question. You need to answer the question based only on the information from the facts.\n",
     "<example>\nJohn journeyed to the bedroom. Mary grabbed the apple. Mary went back to the bathroom. "
     "Daniel journeyed to "
     "the bedroom. Daniel moved to the garden. Mary travelled to the kitchen. Where was the apple before the "
     "kitchen?\nAnswer: Before the kitchen the apple was in the bathroom.\n</example>\n<example>\nJohn went "
     "back to the "
     "bedroom. John went back to the garden. John went back to the kitchen. Sandra took the football. Sandra "
     "travelled to "
     "the garden. Sandra journeyed to the bedroom. Where was the football before the bedroom?\nAnswer: "
     "Before the bedroom "
     "the football was in the garden.\n</example>",
     "Always return your answer in the following format: Before the $location_1$ the $item$ was in the "
     "$location_2$. Do "
     "not write anything else after that."},
};
constexpr int64_t kAnswerTokens = 25;
const std::vector<std::string> kPlaces = {"bathroom", "bedroom", "garden", "hallway", "kitchen", "office"};

struct Story {
  std::vector<std::string> facts;
  std::string question, answer;
};

std::string Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(' ') + 1 - begin));
}

// Lines "1 Mary moved to the bathroom." and "3 Where is Mary?<tab>bathroom<tab>1" (or with | for tabs);
// number 1 begins a story anew.
std::vector<Story> ReadStories(const std::string& path) {
  std::vector<Story> stories;
  std::vector<std::string> facts;
  int64_t number = 0;
  for (const std::string& line : ReadLines(path)) {
    ++number;
    if (Trimmed(line).empty()) continue;
    const size_t space = line.find(' ');
    const bool numbered = space != 0 && space != std::string::npos &&
                          std::all_of(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(space),
                                      [](char c) { return c >= '0' && c <= '9'; });
    if (!numbered) throw Error("[eval] {} line {}: does not begin with a number", path, number);
    if (line.substr(0, space) == "1") facts.clear();
    const std::string text = line.substr(space + 1);
    const size_t question_end = text.find_first_of("\t|");
    if (question_end == std::string::npos) {
      facts.push_back(Trimmed(text));
      continue;
    }
    const std::string_view rest = std::string_view(text).substr(question_end + 1);
    stories.push_back({facts, Trimmed(std::string_view(text).substr(0, question_end)),
                       Trimmed(rest.substr(0, rest.find_first_of("\t|")))});
    if (facts.empty() || stories.back().answer.empty())
      throw Error("[eval] {} line {}: a question without facts or without an answer", path, number);
  }
  if (stories.empty()) throw Error("[eval] {}: holds no questions", path);
  return stories;
}

// Facts keep their order; their places are random.
std::string Spread(const std::vector<std::string>& facts, std::vector<std::string> sentences,
                   Random& random) {
  std::vector<int64_t> places;
  for (size_t i = 0; i < facts.size(); ++i)
    places.push_back(static_cast<int64_t>(random.Below(sentences.size() + 1)));
  std::sort(places.begin(), places.end());
  for (size_t i = facts.size(); i-- > 0;) sentences.insert(sentences.begin() + places[i], facts[i]);
  return JoinSentences(sentences, sentences.size());
}

Sample MakeSample(const Variant& variant, const TaskRequest& request, const Story& story, Random random,
                  int64_t filler) {
  std::vector<std::string> sentences = request.filler->Sentences(filler, random);
  Sample sample;
  sample.prompt =
      fmt::format("{}{}\n\n{}\n\n{}\n\n<context>\n{}\n</context>\n\nQuestion: {}", variant.instruction,
                  variant.name == "qa1" ? "" : kItems, variant.examples, variant.form,
                  Spread(story.facts, std::move(sentences), random), story.question);
  sample.answer_prefix = "\nAnswer:";
  sample.metric = "only_label";
  sample.references = {story.answer};
  sample.classes = kPlaces;
  sample.question = story.question;
  sample.max_tokens = kAnswerTokens;
  return sample;
}

std::vector<Sample> SamplesOf(const Variant& variant, const TaskRequest& request) {
  const std::string task = fmt::format("babi/{}", variant.name);
  const std::string file(variant.file);
  const std::vector<Story> stories =
      ReadStories(FindDataFile(request, task, "babi", {file + "_test.txt", file + "_train.txt"}));
  Random order = RandomFor(request.seed, task, 0, 0);
  const auto count = static_cast<int64_t>(stories.size());
  std::vector<Sample> samples;
  for (const int64_t i : order.Distinct(std::min(request.samples, count), count)) {
    const Random random = RandomFor(request.seed, task, request.length, i);
    samples.push_back(FitToLength(request, task, 0, [&](int64_t filler) {
      return MakeSample(variant, request, stories[static_cast<size_t>(i)], random, filler);
    }));
    samples.back().id = std::to_string(i);
  }
  return samples;
}

}  // namespace

void AddBabi(std::vector<TaskInfo>& tasks) {
  for (const Variant& variant : kVariants) {
    tasks.push_back(
        {.name = fmt::format("babi/{}", variant.name),
         .about = "bAbI's facts spread over a long text",
         .length = TaskLength::kMade,
         .needs_data = true,
         .samples = [&variant](const TaskRequest& request) { return SamplesOf(variant, request); }});
  }
}

}  // namespace coppice
