#pragma once
#include "models/classes.h"
#include "runtime/data/files/label_column.h"
#include "runtime/data/files/tokens.h"

namespace strata::runtime {

// A column for labels of these classes.
LabelColumn column_for(const models::Classes& classes);

// The labels that the sidecar of a token file names (docs/formats.md, "Labels"), as a batch has them, to the end of
// `out`: by document a class, the bits of its classes, or the bits of a number; or by token a class,
// device::kIgnoredLabel where none counts. Throws Error{usage} if the sidecar names none, if they are of another kind
// than `classes` and `per_token` ask for, or if one is none of the classes; Error{corrupt} if the file is not what the
// sidecar says.
void read_labels(const TokenFile& file, const models::Classes& classes, bool per_token, LabelColumn& out);
// Throws the last of these, without reading the labels; nothing if the sidecar names none.
void check_label_file(const TokenFile& file);

}  // namespace strata::runtime
