//! The frame of all HTML pages: head, light and dark colours, common styles. Pages are self-contained, without network
//! access or foreign fonts.

pub mod chart;

const STYLE: &str = include_str!("page.css");

/// Returns a whole page with its own styles and body.
pub fn whole_page(title: &str, style: &str, body: &str) -> String {
    format!("{}{body}\n</body>\n</html>\n", page_head(title, style))
}

/// Returns a page up to the start of its body, for bodies too large for memory.
pub fn page_head(title: &str, style: &str) -> String {
    let title = escape_html(title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <link rel=\"icon\" href=\"data:,\">\n<style>\n{STYLE}{style}</style>\n</head>\n<body>\n"
    )
}

/// Escapes for content and attributes.
pub fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}

/// Escapes JSON in a page element, which `<` in a text could end.
pub fn escape_json(json: &str) -> String {
    json.replace('<', "\\u003c")
}

#[cfg(test)]
mod tests {
    use super::{escape_json, page_head, whole_page};

    #[test]
    fn names_of_strangers_stay_names() {
        let whole = whole_page("</title><script>", "h1 { margin: 1rem; }", "<h1>x</h1>");
        assert!(
            whole.contains("<title>&lt;/title&gt;&lt;script&gt;</title>") && whole.ends_with("</html>\n"),
            "{whole}"
        );
        assert!(whole.find("--ink").unwrap() < whole.find("margin: 1rem").unwrap(), "own rules win");
        assert!(whole.starts_with(&page_head("</title><script>", "h1 { margin: 1rem; }")));
        assert_eq!(escape_json(r#"{"a":"</script>"}"#), r#"{"a":"\u003c/script>"}"#);
    }
}
