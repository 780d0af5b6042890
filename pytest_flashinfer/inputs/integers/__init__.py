"""Contents of integer tensors: ids, pointers, lengths, slots, masks."""
