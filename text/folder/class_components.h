#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/folder/folder_settings.h"
#include "text/json/json.h"
#include "text/text_template.h"

namespace strata::text {

// The components of a tokenizer.json that the class makes anew from the settings: JSON of the "normalizer" or of the
// "pre_tokenizer" if it differs from `own`, with a remark for the user.
std::optional<std::string> normalizer_of_class(const FolderSettings& settings, const Json& own,
                                               std::vector<std::string>& remarks);
std::optional<std::string> pre_tokenizer_of_class(const FolderSettings& settings, const Json& own,
                                                  std::vector<std::string>& remarks);

// What transformers 5 makes for a class in place of what a tokenizer.json has; JSON, "null" if it makes none. nullopt:
// it leaves the file's.
struct ClassComponents {
  std::optional<std::string> normalizer, pre_tokenizer;
};
ClassComponents components_of_class(const FolderSettings& settings);

// A sentence if transformers 4 and 5 differ in what they take: 4 the components of the file, as is done here, and 5 for
// some classes its own. Given are the components that are used.
std::optional<std::string> remark_on_components(const FolderSettings& settings, const std::optional<Json>& normalizer,
                                                const std::optional<Json>& pre_tokenizer);

// The template that the class puts around a text if no tokenizer.json has one.
TextTemplate template_of_class(const FolderSettings& settings,
                               const std::function<std::optional<std::uint32_t>(std::string_view)>& id_of);

}  // namespace strata::text
