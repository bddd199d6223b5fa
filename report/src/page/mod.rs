//! The frame of all HTML pages: head, light and dark colours, common styles. Pages are self-contained, without network
//! access or foreign fonts.

pub mod chart;

const STYLE: &str = include_str!("page.css");

/// Returns a whole page with its own styles and body.
pub fn page(title: &str, style: &str, body: &str) -> String {
    format!("{}{body}\n</body>\n</html>\n", head(title, style))
}

/// Returns a page up to the start of its body, for bodies too large for memory.
pub fn head(title: &str, style: &str) -> String {
    let title = escaped(title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <link rel=\"icon\" href=\"data:,\">\n<style>\n{STYLE}{style}</style>\n</head>\n<body>\n"
    )
}

/// Escapes a text for HTML content and attributes.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}

/// Escapes JSON for an element of a page, which `<` in a text could end.
pub fn data(json: &str) -> String {
    json.replace('<', "\\u003c")
}

#[cfg(test)]
mod tests {
    use super::{data, head, page};

    #[test]
    fn names_of_strangers_stay_names() {
        let whole = page("</title><script>", "h1 { margin: 1rem; }", "<h1>x</h1>");
        assert!(
            whole.contains("<title>&lt;/title&gt;&lt;script&gt;</title>") && whole.ends_with("</html>\n"),
            "{whole}"
        );
        assert!(whole.find("--ink").unwrap() < whole.find("margin: 1rem").unwrap(), "own rules win");
        assert!(whole.starts_with(&head("</title><script>", "h1 { margin: 1rem; }")));
        assert_eq!(data(r#"{"a":"</script>"}"#), r#"{"a":"\u003c/script>"}"#);
    }
}
