#pragma once

#include <span>
#include <string>
#include <string_view>

namespace examples {

/// A word that a user typed, fit for a sentence in one line.
std::string shown(std::string_view word);
/// The same for a path, which may be longer.
std::string shown_path(std::string_view path);
/// What a library says is wrong, of any length and content.
std::string shown_sentence(std::string_view sentence);

/// The known word that `word` is most probably meant to be; empty where none is near.
std::string nearest(std::string_view word, std::span<std::string const> known);

/// The words with commas between.
std::string listed(std::span<std::string const> words);

/// `1 rank`, `2 ranks`.
std::string counted(long number, char const* one, char const* more);

} // namespace examples
