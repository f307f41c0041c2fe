#pragma once

#include <stretto/detail/config.hpp>
#include <stretto/detail/sequence.hpp>
#include <stretto/detail/type_name.hpp>
#include <stretto/rules.hpp>

#include <stdexcept>
#include <string>

namespace stretto {
inline namespace v0 {

namespace detail {

/// A text that is written from front to end, in code that takes compilers less time than that of a `std::string`.
class words {
public:
  STRETTO_COLD words& operator<<(text piece) {
    for (int at = 0; at < piece.size; ++at) letters_.push_back(piece.begin[at]);
    return *this;
  }
  STRETTO_COLD words& operator<<(char const* piece) {
    for (; *piece != '\0'; ++piece) letters_.push_back(*piece);
    return *this;
  }
  STRETTO_COLD words& operator<<(long number) {
    char digits[24] = {};
    char* first = digits + 23;
    unsigned long left =
        number < 0 ? 0UL - static_cast<unsigned long>(number) : static_cast<unsigned long>(number);
    do *--first = static_cast<char>('0' + left % 10);
    while ((left /= 10) != 0);
    if (number < 0) *--first = '-';
    return *this << first;
  }
  STRETTO_COLD words& operator<<(words const& more) {
    return *this << text{more.letters_.data(), static_cast<int>(more.letters_.size())};
  }
  bool empty() const { return letters_.empty(); }
  std::string str() const { return {letters_.begin(), letters_.end()}; }
  /// Throws std::invalid_argument with this text.
  [[noreturn]] STRETTO_COLD void refuse() {
    letters_.push_back('\0');
    throw std::invalid_argument(letters_.data());
  }

private:
  sequence<char> letters_;
};

} // namespace detail

/// What an exception says of a broken rule: the sentence of the rule with its subject in front and the facts before the
/// remedy.
STRETTO_COLD inline detail::words sentence_of(fault what, detail::words const& subject,
                                              detail::words const& facts) {
  detail::text all{rule_of(what).sentence, 0};
  int begin = 0, remedy = 0; // behind "stretto[E01]: ", and from the semicolon on
  for (; all.begin[all.size] != '\0'; ++all.size) {
    if (begin == 0 && all.begin[all.size] == ':') begin = all.size + 2;
    if (remedy == 0 && all.begin[all.size] == ';') remedy = all.size;
  }
  detail::words said;
  said << detail::text{all.begin, begin} << subject;
  if (!subject.empty()) said << ": ";
  return said << detail::text{all.begin + begin, remedy - begin} << facts
              << detail::text{all.begin + remedy, all.size - remedy};
}

} // namespace v0
} // namespace stretto
