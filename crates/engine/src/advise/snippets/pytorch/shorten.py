x = x[:, :__LENGTH__]
# Hugging Face: tokenizer(texts, truncation=True, max_length=__LENGTH__)
