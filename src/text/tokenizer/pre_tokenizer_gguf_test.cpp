// How texts are split for the names of tokenizer.ggml.pre, and what else depends on the name.
#include <gmock/gmock.h>

#include <iterator>
#include <random>
#include <sstream>

#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/tokenizer_test_support.h"

namespace coppice {
namespace {

using test::Ids;
using test::MetadataBuilder;
using test::Strings;

Pieces GgufPieces(const GgufPreTokenizer& pre, std::string text) {
  Pieces pieces;
  pieces.ranges.push_back({0, text.size()});
  pieces.text = std::move(text);
  pre.pre_tokenizer->Apply(pieces);
  return pieces;
}

std::string GgufJoined(const std::string& name, const std::string& text) {
  const std::optional<GgufPreTokenizer> pre = PreTokenizerFromGgufName(name);
  if (!pre) return "unknown";
  const Pieces pieces = GgufPieces(*pre, text);
  std::string joined;
  for (const TextRange range : pieces.ranges)
    joined += pieces.text.substr(range.begin, range.end - range.begin) + "|";
  return joined;
}

struct SplitCase {
  const char* names;
  const char* pieces[3];  // of kSplitTexts, each with "|" behind it

  Strings Names() const {
    std::istringstream words(names);
    return {std::istream_iterator<std::string>(words), {}};
  }
};

constexpr const char* kSplitTexts[] = {
    "Don't WE'LL été 1234567, x_y!!\r\n\n  \t z.\n   3  4 क\u093F a\u0301 \U0001F600\U0001F44D\U0001F3FD `q` "
    "//usr\n  ",
    "漢字\u3000カナ。\u3000「한글」々〇 ㄅ Ünï\u00A0HTTPServer's 12٣4567½ <a b c> …！\r\n      x   ",
    "Ali'den 'RExVE\u00A0\u00A0y'd\t\tfoo!!\n   \n  a\r\nb\r\n\r\n ÉCOLE éCole <sentinel:12>IMGIMGABZ "
    "ᄀꀀ가\u200B 한국\U00020000。，2024\n\n\n\n",
};

// Made with Python's regex module 2026.11.15: it splits at llama.cpp's expressions, one after another, as
// unicode_regex_split() does, with its own number groups and its ranges of Chinese characters. For all of
// these llama.cpp's unicode.cpp gives the same pieces.
const SplitCase kSplits[] = {
    {"gpt-2 modern-bert jina-es jina-v2-code roberta-bpe",
     "Don|'t| WE|'|LL| été| 1234567|,| x|_|y|!!|\r\n\n  \t| z|.|\n  | 3| | 4| क|\u093F| a|\u0301| "
     "\U0001F600\U0001F44D\U0001F3FD| `|q|`| //|usr|\n  |",
     "漢字|\u3000|カナ|。|\u3000|「|한글|」|々|〇| ㄅ| Ünï|\u00A0|HTTPServer|'s| 12٣4567½| <|a| b| c|>| "
     "…！|\r\n     | x|   |",
     "Ali|'d|en| '|RExVE|\u00A0|\u00A0|y|'d|\t|\t|foo|!!|\n   \n | a|\r|\n|b|\r\n\r\n| ÉCOLE| éCole| "
     "<|sentinel|:|12|>|IMGIMGABZ| ᄀꀀ가|\u200B| 한국\U00020000|。，|2024|\n\n\n\n|"},
    {"starcoder refact mellum2",
     "Don|'t| WE|'|LL| été| |1|2|3|4|5|6|7|,| x|_|y|!!|\r\n\n  \t| z|.|\n   |3|  |4| क|\u093F| a|\u0301| "
     "\U0001F600\U0001F44D\U0001F3FD| `|q|`| //|usr|\n  |",
     "漢字|\u3000|カナ|。|\u3000|「|한글|」|々|〇| ㄅ| Ünï|\u00A0|HTTPServer|'s| |1|2|٣|4|5|6|7|½| <|a| b| "
     "c|>| …！|\r\n     | x|   |",
     "Ali|'d|en| '|RExVE|\u00A0|\u00A0|y|'d|\t|\t|foo|!!|\n   \n | a|\r|\n|b|\r\n\r\n| ÉCOLE| éCole| "
     "<|sentinel|:|1|2|>|IMGIMGABZ| ᄀꀀ가|\u200B| 한국\U00020000|。，|2|0|2|4|\n\n\n\n|"},
    {"llama-bpe jina-v5-nano glm4 glm5",
     "Don|'t| WE|'LL| été| |123|456|7|,| x|_y|!!\r\n\n|  \t| z|.\n|  | |3| | |4| क|\u093F| a|\u0301| "
     "\U0001F600\U0001F44D\U0001F3FD| `|q|`| //|usr|\n|  |",
     "漢字|\u3000カナ|。|\u3000|「한글|」々|〇| ㄅ| Ünï|\u00A0HTTPServer|'s| |12٣|456|7½| <|a| b| c|>| "
     "…！\r\n|     | x|   |",
     "Ali|'d|en| '|RExVE|\u00A0|\u00A0y|'d|\t|\tfoo|!!\n|   \n| | a|\r\n|b|\r\n\r\n| ÉCOLE| éCole| "
     "<|sentinel|:|12|>IMGIMGABZ| ᄀꀀ가|\u200B| 한국\U00020000|。，|202|4|\n\n\n\n|"},
    {"qwen2 f2llmv2 bailingmoe bailingmoe2 llada-moe",
     "Don|'t| WE|'LL| été| |1|2|3|4|5|6|7|,| x|_y|!!\r\n\n|  \t| z|.\n|  | |3| | |4| क|\u093F| a|\u0301| "
     "\U0001F600\U0001F44D\U0001F3FD| `|q|`| //|usr|\n|  |",
     "漢字|\u3000カナ|。|\u3000|「한글|」々|〇| ㄅ| Ünï|\u00A0HTTPServer|'s| |1|2|٣|4|5|6|7|½| <|a| b| c|>| "
     "…！\r\n|     | x|   |",
     "Ali|'d|en| '|RExVE|\u00A0|\u00A0y|'d|\t|\tfoo|!!\n|   \n| | a|\r\n|b|\r\n\r\n| ÉCOLE| éCole| "
     "<|sentinel|:|1|2|>IMGIMGABZ| ᄀꀀ가|\u200B| 한국\U00020000|。，|2|0|2|4|\n\n\n\n|"},
    {"qwen35",
     "Don|'t| WE|'LL| été| |1|2|3|4|5|6|7|,| x|_y|!!\r\n\n|  \t| z|.\n|  | |3| | |4| क\u093F| a\u0301| "
     "\U0001F600\U0001F44D\U0001F3FD| `|q|`| //|usr|\n|  |",
     "漢字|\u3000カナ|。|\u3000|「한글|」々|〇| ㄅ| Ünï|\u00A0HTTPServer|'s| |1|2|٣|4|5|6|7|½| <|a| b| c|>| "
     "…！\r\n|     | x|   |",
     "Ali|'d|en| '|RExVE|\u00A0|\u00A0y|'d|\t|\tfoo|!!\n|   \n| | a|\r\n|b|\r\n\r\n| ÉCOLE| éCole| "
     "<|sentinel|:|1|2|>IMGIMGABZ| ᄀꀀ가|\u200B| 한국\U00020000|。，|2|0|2|4|\n\n\n\n|"},
    {"bloom",
     "Don't| WE'LL| été| 1234567|,| x_y|!!\r\n\n  \t| z|.\n  | 3| | 4| क\u093F| a\u0301| "
     "\U0001F600\U0001F44D\U0001F3FD| `q`| //usr|\n  |",
     "漢字|\u3000|カナ|。\u3000|「한글」々〇| ㄅ| Ünï|\u00A0|HTTPServer's| 12٣4567½| <a| b| c>| …|！|\r\n    "
     " | x|   |",
     "Ali'den| 'RExVE|\u00A0\u00A0|y'd|\t\t|foo|!!\n   \n | a|\r\n|b|\r\n\r\n| ÉCOLE| éCole| "
     "<sentinel:12>IMGIMGABZ| ᄀꀀ가\u200B| 한국\U00020000|。，|2024|\n\n\n\n|"},
    {"laguna",
     "Don|'t| WE|'LL| été| |1|2|3|4|5|6|7|,| x|_y|!!\r|\n\n|  \t| z|.|\n|  | |3| | |4| क|\u093F| a|\u0301| "
     "\U0001F600\U0001F44D\U0001F3FD| `|q|`| //|usr|\n|  |",
     "漢字|\u3000カナ|。|\u3000|「한글|」々|〇| ㄅ| Ünï|\u00A0HTTPServer|'s| |1|2|٣|4|5|6|7|½| <|a| b| c|>| "
     "…！\r|\n|     | x|   |",
     "Ali|'d|en| '|RExVE|\u00A0|\u00A0y|'d|\t|\tfoo|!!|\n|   |\n| | a|\r|\n|b|\r|\n|\r|\n| ÉCOLE| éCole| "
     "<|sentinel|:|1|2|>IMGIMGABZ| ᄀꀀ가|\u200B| 한국\U00020000|。，|2|0|2|4|\n\n\n\n|"},
    {"ufakzeka",
     "Don|'t| WE|'LL| été| |1|2|3|4|5|6|7|,| x|_y|!!\r\n\n|  \t| z|.\n|  | |3| | |4| क|\u093F| a|\u0301| "
     "\U0001F600\U0001F44D\U0001F3FD| `|q|`| //|usr|\n|  |",
     "漢字|\u3000カナ|。|\u3000|「한글|」々|〇| ㄅ| Ünï|\u00A0HTTPServer|'s| |1|2|٣|4|5|6|7|½| <|a| b| c|>| "
     "…！\r\n|     | x|   |",
     "Ali|'den| '|RExVE|\u00A0|\u00A0y|'d|\t|\tfoo|!!\n|   \n| | a|\r\n|b|\r\n\r\n| ÉCOLE| éCole| "
     "<|sentinel|:|1|2|>IMGIMGABZ| ᄀꀀ가|\u200B| 한국\U00020000|。，|2|0|2|4|\n\n\n\n|"},
    {"seed-coder",
     "Don|'t| WE|'LL| été| |1|2|3|4|5|6|7|,| x|_y|!!|\r\n\n|  \t| z|.|\n|  | |3| | |4| क|\u093F| a|\u0301| "
     "\U0001F600\U0001F44D\U0001F3FD| `|q|`| //|usr|\n|  |",
     "漢字|\u3000カナ|。|\u3000|「한글|」々|〇| ㄅ| Ünï|\u00A0HTTPServer|'s| |1|2|٣|4|5|6|7|½| <|a| b| c|>| "
     "…！|\r\n|     | x|   |",
     "Ali|'d|en| '|RExVE|\u00A0|\u00A0y|'d|\t|\tfoo|!!|\n   \n| | a|\r\n|b|\r\n\r\n| ÉCOLE| éCole| "
     "<|sentinel|:|1|2|>IMGIMGABZ| ᄀꀀ가|\u200B| 한국\U00020000|。，|2|0|2|4|\n\n\n\n|"},
    {"minicpm5",
     "Don|'t| WE|'LL| été| |123|456|7|,| x|_y|!!\r\n\n|  \t| z|.\n|   |3|  |4| क|\u093F| a|\u0301| "
     "\U0001F600\U0001F44D\U0001F3FD| `|q|`| //|usr|\n|  |",
     "漢字|\u3000カナ|。|\u3000|「한글|」々|〇| ㄅ| Ünï|\u00A0HTTPServer|'s| |12٣|456|7½| <|a| b| c|>| "
     "…！\r\n|     | x|   |",
     "Ali|'d|en| '|RExVE|\u00A0|\u00A0y|'d|\t|\tfoo|!!\n|   \n| | a|\r\n|b|\r\n\r\n| ÉCOLE| éCole| "
     "<|sentinel|:|12|>IMGIMGABZ| ᄀꀀ가|\u200B| 한국\U00020000|。，|202|4|\n\n\n\n|"},
    {"jais-2",
     "Don|'t| WE|'LL| été| |123|456|7|,| x|_y|!!\r\n\n|  |\t| z|.\n|  | |3| | |4| क|\u093F| a|\u0301| "
     "\U0001F600\U0001F44D\U0001F3FD| `|q|`| //|usr|\n|  |",
     "漢字|\u3000カナ|。|\u3000|「한글|」々|〇| ㄅ| Ünï|\u00A0HTTPServer|'s| |12٣|456|7½| <|a| b| c|>| "
     "…！\r\n|    | | x|  | |",
     "Ali|'d|en| '|RExVE|\u00A0|\u00A0y|'d|\t|\tfoo|!!\n|   \n| | a|\r\n|b|\r\n\r\n| ÉCOLE| éCole| "
     "<|sentinel|:|12|>IMGIMGABZ| ᄀꀀ가|\u200B| 한국\U00020000|。，|202|4|\n\n\n\n|"},
    {"exaone-moe",
     "Don|'t| WE|'LL| été| |1|2|3|4|5|6|7|,| x|_y|!!\r|\n\n|  \t| z|.\n|  | |3| | |4| क\u093F a\u0301| "
     "\U0001F600\U0001F44D\U0001F3FD| `|q|`| //|usr|\n|  |",
     "漢字|\u3000カナ|。|\u3000|「한글|」々|〇| ㄅ Ünï|\u00A0HTTPServer|'s| |1|2|٣|4|5|6|7|½| <|a b c|>| "
     "…！\r|\n|     | x|   |",
     "Ali|'d|en| '|RExVE|\u00A0|\u00A0y|'d|\t|\tfoo|!!\n|   \n| | a|\r\n|b|\r\n\r\n| ÉCOLE éCole| "
     "<|sentinel|:|1|2|>IMGIMGABZ ᄀꀀ가|\u200B| 한국\U00020000|。，|2|0|2|4|\n\n\n\n|"},
    {"kimi-k2",
     "Don't| WE'LL| été| |123|456|7|,| x|_y|!!\r\n\n|  \t| z|.\n|  | |3| | |4| क|\u093F| a|\u0301| "
     "\U0001F600\U0001F44D\U0001F3FD| `|q|`| //|usr|\n|  |",
     "漢字|\u3000カナ|。|\u3000|「한글|」々|〇| ㄅ| Ünï|\u00A0HTTPServer's| |12٣|456|7½| <|a| b| c|>| "
     "…！\r\n|     | x|   |",
     "Ali'd|en| '|RExVE|\u00A0|\u00A0y'd|\t|\tfoo|!!\n|   \n| | a|\r\n|b|\r\n\r\n| ÉCOLE| éCole| "
     "<|sentinel|:|12|>IMGIMGABZ| ᄀꀀ가|\u200B| 한국|\U00020000|。，|202|4|\n\n\n\n|"},
    {"youtu",
     "Don't| WE'LL| été| |1|2|3|4|5|6|7|,| x|_y|!!\r\n\n|  \t| z|.\n|  | |3| | |4| क\u093F| a\u0301| "
     "\U0001F600\U0001F44D\U0001F3FD| `|q|`| //|usr|\n|  |",
     "漢字|\u3000|カナ|。|\u3000|「|한글|」々|〇| |ㄅ| Ünï|\u00A0HTTPServer's| |1|2|٣|4|5|6|7|½| <|a| b| "
     "c|>| |…！|\r\n|     | x|   |",
     "Ali'd|en| '|RExVE|\u00A0|\u00A0y'd|\t|\tfoo|!!\n|   \n| | a|\r\n|b|\r\n\r\n| ÉCOLE| éCole| "
     "<|sentinel|:|1|2|>IMGIMGABZ| ᄀꀀ|가|\u200B| |한국|\U00020000|。，|2|0|2|4|\n\n\n\n|"},
    {"tiny_aya cohere2moe",
     "Don't| WE'LL| été| |1|234|567|,| x|_y|!!\r\n\n|  \t| z|.\n|  | |3| | |4| क\u093F| a\u0301| "
     "\U0001F600\U0001F44D\U0001F3FD| `|q|`| //|usr|\n|  |",
     "漢字|\u3000カナ|。|\u3000|「한글|」々|〇| ㄅ| Ünï|\u00A0HTTPServer's| |12|٣45|67½| <|a| b| c|>| "
     "…！\r\n|     | x|   |",
     "Ali'd|en| '|RExVE|\u00A0|\u00A0y'd|\t|\tfoo|!!\n|   \n| | a|\r\n|b|\r\n\r\n| ÉCOLE| éCole| "
     "<|sentinel|:|12|>IMGIMGABZ| ᄀꀀ가|\u200B| 한국\U00020000|。，|2|024|\n\n\n\n|"},
    {"afmoe",
     "Don|'t| WE|'LL| été| |1|234|567|,| x|_y|!!\r\n\n|  \t| z|.\n|  | |3| | |4| क\u093F| a\u0301| "
     "\U0001F600\U0001F44D\U0001F3FD| `|q|`| //|usr|\n|  |",
     "漢字|\u3000|カナ|。|\u3000|「|한글|」|々|〇| ㄅ| Ünï|\u00A0HTTPServer|'s| |12|٣45|67½| <|a| b| c|>| "
     "…！\r\n|     | x|   |",
     "Ali|'den| '|RExVE|\u00A0|\u00A0y|'d|\t|\tfoo|!!\n|   \n| | a|\r\n|b|\r\n\r\n| ÉCOLE| éCole| "
     "<|sentinel|:|12|>IMGIMGABZ| |ᄀꀀ가|\u200B| |한국|\U00020000|。，|2|024|\n\n\n\n|"},
    {"superbpe",
     "Don't WE'LL été |1|234|567|, x_y!!\r\n\n  \t z.\n   |3|  |4| क\u093F a\u0301 "
     "\U0001F600\U0001F44D\U0001F3FD `q` //usr\n  |",
     "漢字\u3000カナ。\u3000「한글」々|〇| ㄅ Ünï\u00A0HTTPServer's |12٣4|567½| <a b c> …！\r\n      x   |",
     "Ali'den 'RExVE\u00A0\u00A0y'd\t\tfoo!!\n   \n  a\r\nb\r\n\r\n ÉCOLE éCole <sentinel:|12|>IMGIMGABZ "
     "ᄀꀀ가\u200B 한국\U00020000。，|2|024|\n\n\n\n|"},
    {"viking",
     "Don't| WE'LL| été| |1|2|3|4|5|6|7|,| x_y|!!\r\n\n  \t| z|.\n  | |3| | |4| क\u093F| a\u0301| "
     "\U0001F600\U0001F44D\U0001F3FD| `q`| //usr|\n  |",
     "漢字|\u3000|カナ|。\u3000|「한글」々|〇| ㄅ| Ünï|\u00A0|HTTPServer's| |1|2|٣|4|5|6|7|½| <a| b| c>| "
     "…|！|\r\n     | x|   |",
     "Ali'den| 'RExVE|\u00A0\u00A0|y'd|\t\t|foo|!!\n   \n | a|\r\n|b|\r\n\r\n| ÉCOLE| éCole| "
     "<sentinel:|1|2|>IMGIMGABZ| ᄀꀀ가\u200B| 한국\U00020000|。，|2|0|2|4|\n\n\n\n|"},
    {"falcon",
     "Don|'|t| WE|'|LL| été| |123|456|7|,| x|_|y|!!|\r\n\n  \t| z|.|\n  | 3| | 4| क|\u093F| a|\u0301| "
     "\U0001F600\U0001F44D\U0001F3FD| |`|q|`| |//|usr|\n  |",
     "漢字|\u3000|カナ|。|\u3000|「|한글|」|々|〇| ㄅ| Ünï|\u00A0|HTTPServer|'|s| 12٣|456|7½| |<|a| b| c|>| "
     "|…！|\r\n     | x|   |",
     "Ali|'|den| |'|RExVE|\u00A0|\u00A0|y|'|d|\t|\t|foo|!!|\n   \n | a|\r|\n|b|\r\n\r\n| ÉCOLE| éCole| "
     "|<|sentinel|:|12|>|IMGIMGABZ| ᄀꀀ가|\u200B| 한국\U00020000|。，|202|4|\n\n\n\n|"},
    {"deepseek-llm",
     "Don|'|t| WE|'|LL| é|t|é| |1234567|,| x|_|y|!!|\r|\n|\n|  \t| z|.|\n|   |3|  |4| |क\u093F| a|\u0301 "
     "\U0001F600\U0001F44D\U0001F3FD| `|q|`| //|usr|\n|  |",
     "漢字|\u3000|カナ|。|\u3000|「한글」々|〇| |ㄅ| Ü|n|ï|\u00A0HTTPServer|'|s| |12٣4567½| <|a| b| c|>| "
     "|…|！|\r|\n|     | x|   |",
     "Ali|'|den| '|RExVE|\u00A0|\u00A0y|'|d|\t|\tfoo|!!|\n|   |\n| | a|\r|\n|b|\r|\n|\r|\n| É|COLE| é|Cole| "
     "<|sentinel|:|12|>|IMGIMGABZ| |ᄀ|ꀀ|가\u200B| |한국|\U00020000|。|，|2024|\n|\n|\n|\n|"},
    {"deepseek-coder",
     "Don|'|t| WE|'|LL| été| |1|2|3|4|5|6|7|,| x|_|y|!!|\r|\n|\n|  \t| z|.|\n|   |3|  |4| |क|\u093F| "
     "a|\u0301 \U0001F600\U0001F44D\U0001F3FD `|q|`| //|usr|\n|  |",
     "漢字|\u3000|カナ|。|\u3000|「|한글|」|々|〇| |ㄅ| Ünï|\u00A0HTTPServer|'|s| |1|2|٣|4|5|6|7|½| <|a| b| "
     "c|>| |…|！|\r|\n|     | x|   |",
     "Ali|'|den| '|RExVE|\u00A0|\u00A0y|'|d|\t|\tfoo|!!|\n|   |\n| | a|\r|\n|b|\r|\n|\r|\n| ÉCOLE| éCole| "
     "<|sentinel|:|1|2|>|IMGIMGABZ| |ᄀ|ꀀ|가|\u200B| |한국|\U00020000|。|，|2|0|2|4|\n|\n|\n|\n|"},
    {"deepseek-v3 hunyuan-dense joyai-llm hy_v4",
     "Don|'t| WE|'LL| été| |123|456|7|,| x|_y|!!\r\n\n|  \t| z|.\n|   |3|  |4| क\u093F| a\u0301| "
     "\U0001F600\U0001F44D\U0001F3FD| `|q|`| //|usr|\n|  |",
     "漢字|\u3000|カナ|。|\u3000|「|한글|」|々|〇| ㄅ| Ünï|\u00A0HTTPServer|'s| |12٣|456|7½| <|a| b| c|>| "
     "…！\r\n|     | x|   |",
     "Ali|'den| '|RExVE|\u00A0|\u00A0y|'d|\t|\tfoo|!!\n|   \n| | a|\r\n|b|\r\n\r\n| ÉCOLE| éCole| "
     "<|sentinel|:|12|>IMGIMGABZ| ᄀꀀ가|\u200B| 한국\U00020000|。，|202|4|\n\n\n\n|"},
    {"spark2_5",
     "Don|'t| WE|'LL| été| |1|2|3|4|5|6|7|,| x|_y|!!|\r|\n|\n|  \t| z|.|\n|   |3|  |4| क\u093F| a\u0301| "
     "\U0001F600\U0001F44D\U0001F3FD| `|q|`| //|usr|\n|  |",
     "漢字|\u3000|カナ|。|\u3000|「|한글|」|々|〇| ㄅ| Ünï|\u00A0HTTPServer|'s| |1|2|٣|4|5|6|7|½| <|a| b| "
     "c|>| …！|\r|\n|     | x|   |",
     "Ali|'den| '|RExVE|\u00A0|\u00A0y|'d|\t|\tfoo|!!|\n|   \n | a|\r|\n|b|\r|\n|\r|\n| ÉCOLE| éCole| "
     "<|sentinel|:|1|2|>IMGIMGABZ| ᄀꀀ가|\u200B| 한국\U00020000|。，|2|0|2|4|\n|\n|\n|\n|"},
    {"chameleon",
     "Don|'|t| WE|'|LL| été| |1|2|3|4|5|6|7|,| x|_|y|!|!|\r|\n|\n|  |\t| z|.|\n|  | |3|  |4| क|\u093F| "
     "a|\u0301| \U0001F600\U0001F44D\U0001F3FD| |`|q|`| |/|/|usr|\n|  |",
     "漢字|\u3000|カナ|。|\u3000|「|한글|」|々|〇| ㄅ| Ünï|\u00A0|HTTPServer|'|s| |1|2|٣|4|5|6|7|½| |<|a| b| "
     "c|>| |…|！|\r|\n|    |  |x|  | |",
     "Ali|'|den| |'|RExVE|\u00A0|\u00A0|y|'|d|\t|\t|foo|!|!|\n|  | |\n|  |a|\r|\n|b|\r|\n|\r|\n| ÉCOLE| "
     "éCole| |<|sentinel|:|1|2|>|IMGIMGABZ| ᄀꀀ가|\u200B| 한국\U00020000|。|，|2|0|2|4|\n|\n|\n|\n|"},
    {"gemma4 granite-embed-multi-311m sarvam-moe",
     "Don't WE'LL été 1234567, x_y!!\r|\n\n|  \t z.|\n|   3  4 क\u093F a\u0301 "
     "\U0001F600\U0001F44D\U0001F3FD `q` //usr|\n|  |",
     "漢字\u3000カナ。\u3000「한글」々〇 ㄅ Ünï\u00A0HTTPServer's 12٣4567½ <a b c> …！\r|\n|      x   |",
     "Ali'den 'RExVE\u00A0\u00A0y'd\t\tfoo!!|\n|   |\n|  a\r|\n|b\r|\n|\r|\n| ÉCOLE éCole "
     "<sentinel:12>IMGIMGABZ ᄀꀀ가\u200B 한국\U00020000。，2024|\n\n\n\n|"},
};

TEST(GgufPreTokenizer, SplitsAsLlamaCpp) {
  for (const SplitCase& one : kSplits) {
    for (const std::string& name : one.Names()) {
      for (size_t i = 0; i < std::size(kSplitTexts); ++i)
        EXPECT_EQ(GgufJoined(name, kSplitTexts[i]), one.pieces[i]) << name;
    }
  }
}

TEST(GgufPreTokenizer, CutsLongSpacesToPowersOfTwo) {
  const std::string spaces(700, ' ');
  const Pieces pieces = GgufPieces(*PreTokenizerFromGgufName("jais-2"),
                                   "x   y" + spaces + "\n" + spaces.substr(0, 13) + "z" + spaces + "z");
  std::vector<size_t> sizes;
  for (const TextRange range : pieces.ranges) sizes.push_back(range.end - range.begin);
  EXPECT_THAT(sizes, testing::ElementsAre(1, 2, 2, 701, 8, 4, 2, 512, 128, 32, 16, 8, 2, 1, 2));
}

// An expression that looks at a run again from each of its characters reaches the limit on time, which is an
// error.
TEST(GgufPreTokenizer, LongRunsTakeLinearTime) {
  for (const SplitCase& one : kSplits) {
    const std::optional<GgufPreTokenizer> pre = PreTokenizerFromGgufName(one.Names()[0]);
    for (const char* unit : {" ", "\n", "1", "a", "a ", "漢"}) {
      std::string text;
      while (text.size() < 400'000) text += unit;
      text += *unit == '1' ? 'x' : '1';
      EXPECT_NO_THROW(GgufPieces(*pre, text)) << one.names << " '" << unit << "'";
    }
  }
  const auto jais = PreTokenizerFromGgufName("jais-2");
  EXPECT_NO_THROW(GgufPieces(*jais, std::string(10'000'000, ' ') + "x"));
}

TEST(GgufPreTokenizer, WholePiecesAndBosAreOfTheName) {
  const auto expect = [](const std::vector<const char*>& names, WholePieces whole, GgufBos bos) {
    for (const char* name : names) {
      const std::optional<GgufPreTokenizer> pre = PreTokenizerFromGgufName(name);
      ASSERT_TRUE(pre) << name;
      EXPECT_EQ(pre->whole, whole) << name;
      EXPECT_EQ(pre->add_bos, bos) << name;
    }
  };
  expect({"llama-bpe", "falcon-h1", "lfm2", "jina-v5-nano", "tekken"}, WholePieces::kAll, GgufBos::kYes);
  expect({"minicpm5", "youtu", "glm4", "glm5"}, WholePieces::kAll, GgufBos::kNo);
  expect({"chameleon"}, WholePieces::kNone, GgufBos::kYes);
  expect({"gemma4", "granite-embed-multi-311m"}, WholePieces::kNewlines, GgufBos::kAlways);
  expect({"sarvam-moe", "chatglm-bpe", "dbrx", "gpt-4o", "talkie", "kimi-k2", "deepseek-v3", "deepseek-llm",
          "falcon", "seed-coder", "exaone-moe", "superbpe", "default"},
         WholePieces::kNone, GgufBos::kNo);
  for (const char* name : {"", "gemma", "Falcon", "deepseek", "whitespace"})
    EXPECT_FALSE(PreTokenizerFromGgufName(name)) << name;
}

// <bos>, 256 byte tokens of type `byte_type`, and from 257 on a few texts.
MetadataBuilder SmallCharacters(const std::string& model, const std::string& pre, int64_t byte_type) {
  Strings tokens{"<bos>"};
  std::vector<int64_t> types{3};
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof(name), "<0x%02X>", byte);
    tokens.emplace_back(name);
    types.push_back(byte_type);
  }
  for (const char* text : {"\u2581", "a", "b", "\u2581a", "ab", "\n", "\n\n", "\n\n\n", "\u2581\u2581"}) {
    tokens.emplace_back(text);
    types.push_back(1);
  }
  MetadataBuilder builder;
  builder.Set("tokenizer.ggml.model", model).Set("tokenizer.ggml.pre", pre);
  builder.Set("tokenizer.ggml.bos_token_id", int64_t{0});
  builder.Array("tokenizer.ggml.tokens", std::move(tokens));
  builder.Array("tokenizer.ggml.token_type", std::move(types));
  builder.Array("tokenizer.ggml.merges", Strings{"\u2581 \u2581", "\u2581 a", "a b", "\n \n"});
  return builder;
}

constexpr int32_t kIdSpace = 257, kIdA = 258, kIdB = 259, kIdSpaceA = 260, kIdAb = 261, kIdLine = 262,
                  kIdLines2 = 263, kIdLines3 = 264, kIdSpaces = 265;
constexpr int32_t IdOfByte(uint8_t byte) { return 1 + byte; }

TEST(GgufPreTokenizer, GemmaMergesCharacters) {
  const auto gemma = SmallCharacters("gemma4", "llama-bpe", 6).Load();
  const EncodeOptions plain{.add_special = false};
  EXPECT_EQ(gemma->Encode("ab b", plain), (Ids{kIdAb, kIdSpace, kIdB}));
  EXPECT_EQ(gemma->Encode(" ab   a", plain), (Ids{kIdSpaceA, kIdB, kIdSpaces, kIdSpaceA}));
  EXPECT_EQ(gemma->Encode("é\u2581\xFF", plain),
            (Ids{IdOfByte(0xC3), IdOfByte(0xA9), kIdSpace, IdOfByte(0xFF)}));
  EXPECT_EQ(gemma->Encode("a\n\n\nb", plain),
            (Ids{kIdA, kIdLines3, kIdB}));  // a token, though no merge makes it
  EXPECT_EQ(gemma->Encode("\n\n\n\n", plain), (Ids{kIdLines2, kIdLines2}));
  EXPECT_EQ(gemma->Encode("\n", plain), (Ids{kIdLine}));
  for (const std::string text : {"ab b", " ab   a", "é <0x41>\n\n\n\n\n a"})
    EXPECT_EQ(gemma->Decode(gemma->Encode(text, plain)), text);
  EXPECT_EQ(gemma->kind(), "bpe");
  EXPECT_EQ(gemma->note(), "");
}

TEST(GgufPreTokenizer, GemmaAlwaysAddsBos) {
  const auto first = [](const char* pre) {
    MetadataBuilder builder = SmallCharacters("gpt2", pre, 6);
    return builder.Set("tokenizer.ggml.add_bos_token", false).Load()->Encode("a").front();
  };
  EXPECT_EQ(first("gemma4"), 0);
  EXPECT_EQ(first("llama-bpe"), kIdA);
  EXPECT_EQ(SmallCharacters("gpt2", "sarvam-moe", 6).Load()->Encode("a").front(), kIdA);
}

// A merge of byte tokens makes the words depend on each other, as far as the names of tokens tell. A merge
// that reaches over the start of a word after "b" leaves the others separate. The tokens are the same.
TEST(GgufPreTokenizer, CharactersAreMergedByWordsAsTheWholeText) {
  const auto load = [](bool separate) {
    Strings tokens{"<unk>", "\u2581"};
    Strings merges;
    for (const char* merge : {"b \u2581", "b\u2581 a", "a b", "\u2581 a", "\u2581 \u2581", "\u2581a b", "é a",
                              "\u2581\u2581 a", "a a", "\u2581 b"}) {
      merges.emplace_back(merge);
      std::string merged = merge;
      merged.erase(merged.find(' '), 1);
      tokens.push_back(merged);
    }
    std::vector<int64_t> types(tokens.size(), 1);
    types[0] = 2;
    for (const char* text : {"a", "b", "é", "<0x01><0x02>"}) tokens.emplace_back(text);
    types.resize(tokens.size(), 1);
    for (const char* text : {"<0x01>", "<0x02>"}) tokens.emplace_back(text);
    types.resize(tokens.size(), 6);
    if (!separate) merges.emplace_back("<0x01> <0x02>");
    MetadataBuilder builder;
    builder.Set("tokenizer.ggml.model", std::string("gemma4"))
        .Set("tokenizer.ggml.unknown_token_id", int64_t{0});
    builder.Array("tokenizer.ggml.tokens", std::move(tokens))
        .Array("tokenizer.ggml.merges", std::move(merges));
    return builder.Array("tokenizer.ggml.token_type", std::move(types)).Load();
  };
  const auto by_words = load(true), whole = load(false);
  std::mt19937 random(7);
  const Strings letters{"a", "a", "b", " ", " ", "é", "x", "\n", "\xFF"};
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int i = 0; i < 12; ++i) text += letters[random() % letters.size()];
    EXPECT_EQ(by_words->Encode(text), whole->Encode(text)) << '"' << text << '"';
  }
  EXPECT_EQ(by_words->Encode("ab a"), (Ids{12, 3}));
}

// Converters that take the vocabulary for GPT-2's call byte tokens normal.
TEST(GgufPreTokenizer, ByteTokensMayBeCalledNormal) {
  const auto sarvam = SmallCharacters("gpt2", "sarvam-moe", 1).Load();
  EXPECT_EQ(sarvam->Encode("é\n\n\n"), (Ids{IdOfByte(0xC3), IdOfByte(0xA9), kIdLines2, kIdLine}));
  EXPECT_EQ(sarvam->Decode(Ids{IdOfByte(0xC3), IdOfByte(0xA9), kIdLine}), "é\n");
}

}  // namespace
}  // namespace coppice
