#pragma once
#include "models/classes.h"
#include "runtime/data/files/label_column.h"
#include "runtime/data/files/tokens.h"

namespace strata::runtime {

// A column for labels of these classes.
LabelColumn column_for(const models::Classes& classes);

// Appends the labels that a token file's sidecar names (docs/formats.md, "Labels") to `out`, in the form of a batch.
// Per document: a class, the bits of its classes, the number of their set, or the bits of a number. Per token: a class,
// or device::kIgnoredLabel if none counts. Throws Error{usage} if the sidecar names no labels, if their kind does not
// match `classes` and `per_token`, or if one is not a class. Throws Error{corrupt} if the file differs from what the
// sidecar says.
void read_labels(const TokenFile& file, const models::Classes& classes, bool per_token, LabelColumn& out);
// Makes the last of these checks without reading the labels. Does nothing if the sidecar names none.
void check_label_file(const TokenFile& file);

}  // namespace strata::runtime
