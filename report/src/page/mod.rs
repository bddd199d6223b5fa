//! The frame of every page for the browser: head, colours by day and by night, and the look of what all pages have. Pages
//! stand alone: no network, no fonts of others.

pub mod chart;

/// Colours and common rules; a page's own rules come after them.
const STYLE: &str = include_str!("page.css");

/// A whole page: its own rules of style, and its body.
pub fn page(title: &str, style: &str, body: &str) -> String {
    format!("{}{body}\n</body>\n</html>\n", head(title, style))
}

/// The page up to where its body begins, for bodies too large to be held.
pub fn head(title: &str, style: &str) -> String {
    let title = escaped(title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <link rel=\"icon\" href=\"data:,\">\n<style>\n{STYLE}{style}</style>\n</head>\n<body>\n"
    )
}

/// A text as it stands in a page or in an attribute.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}

/// JSON as it stands in an element of a page, which `<` in a text could end.
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
