//! Shell sessions in Markdown, run and compared: `cli/*.md`.
