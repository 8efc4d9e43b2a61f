"""Tables: data frames, CSV and Parquet files, Hugging Face data sets."""
