#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/pipeline/folder_settings.h"
#include "text/text_template.h"

namespace strata::text {

// The components of a tokenizer.json that the class makes anew from the settings: JSON of the "normalizer" or of the
// "pre_tokenizer" if it differs from `own`, with a remark for the user.
std::optional<std::string> normalizer_of_class(const FolderSettings& settings, const Json& own,
                                               std::vector<std::string>& remarks);
std::optional<std::string> pre_tokenizer_of_class(const FolderSettings& settings, const Json& own,
                                                  std::vector<std::string>& remarks);

// The template that the class puts around a text if no tokenizer.json has one.
TextTemplate template_of_class(const FolderSettings& settings,
                               const std::function<std::optional<std::uint32_t>(std::string_view)>& id_of);

}  // namespace strata::text
