//! The frame of all HTML pages. Pages are self-contained: they load nothing from the network and use system fonts.

pub mod chart;

const STYLE: &str = include_str!("page.css");

/// Returns a complete page with additional styles and a body.
pub fn whole_page(title: &str, style: &str, body: &str) -> String {
    format!("{}{body}\n</body>\n</html>\n", page_head(title, style))
}

/// Returns the beginning of a page, up to its body. For pages whose body is too large for memory.
pub fn page_head(title: &str, style: &str) -> String {
    let title = escape_html(title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <link rel=\"icon\" href=\"data:,\">\n<style>\n{STYLE}{style}</style>\n</head>\n<body>\n"
    )
}

/// Escapes a text for the content and the attributes of HTML elements.
pub fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}

/// Escapes JSON that is embedded in a page, because `<` in a text could end the element.
pub fn escape_json(json: &str) -> String {
    json.replace('<', "\\u003c")
}

#[cfg(test)]
mod tests {
    use super::{escape_json, page_head, whole_page};

    #[test]
    fn untrusted_names_are_escaped() {
        let whole = whole_page("</title><script>", "h1 { margin: 1rem; }", "<h1>x</h1>");
        assert!(
            whole.contains("<title>&lt;/title&gt;&lt;script&gt;</title>") && whole.ends_with("</html>\n"),
            "{whole}"
        );
        assert!(
            whole.find("--ink").unwrap() < whole.find("margin: 1rem").unwrap(),
            "the page's own rules take precedence"
        );
        assert!(whole.starts_with(&page_head("</title><script>", "h1 { margin: 1rem; }")));
        assert_eq!(escape_json(r#"{"a":"</script>"}"#), r#"{"a":"\u003c/script>"}"#);
    }
}
