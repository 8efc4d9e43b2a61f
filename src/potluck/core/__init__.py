"""The nouns, the verbs and the loop: everything a method or an engine may rely on."""
