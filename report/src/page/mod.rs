//! The frame of all HTML pages. Pages are self-contained: they load nothing from the network and use system fonts.

pub mod chart;
mod origin;

pub use origin::{Site, page_footer, set_program};

const STYLE: &str = include_str!("page.css");

/// Returns a complete page with additional styles, a body and the footer that names its origin.
pub fn whole_page(title: &str, style: &str, body: &str) -> String {
    format!("{}{body}\n{}</body>\n</html>\n", page_head(title, style), page_footer())
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

/// Escapes a name that may continue on the next line after each `_`, `.`, `]` and `,`.
pub fn break_name(name: &str) -> String {
    let parts: Vec<String> = name.split_inclusive(['_', '.', ']', ',']).map(escape_html).collect();
    parts.join("<wbr>")
}

/// Returns a note for narrow windows that names the columns that only wider windows show.
pub fn wider_note(columns: &[&str]) -> String {
    let named = match columns {
        [] => return String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    };
    format!("<p class=\"narrow soft\">A wider window also shows {}.</p>", escape_html(&named))
}

/// Escapes JSON that is embedded in a page, because `<` in a text could end the element.
pub fn escape_json(json: &str) -> String {
    json.replace('<', "\\u003c")
}

#[cfg(test)]
mod tests {
    use super::{break_name, escape_json, page_head, whole_page, wider_note};

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

    #[test]
    fn names_break_after_separators() {
        assert_eq!(break_name("a_b[<1>].c"), "a_<wbr>b[&lt;1&gt;]<wbr>.<wbr>c");
        assert_eq!((break_name(""), break_name("a_")), (String::new(), "a_".to_owned()));
    }

    #[test]
    fn a_note_names_the_columns_that_narrow_windows_hide() {
        let note = |columns: &str| format!("<p class=\"narrow soft\">A wider window also shows {columns}.</p>");
        assert_eq!(wider_note(&[]), "");
        assert_eq!(wider_note(&["<rows>"]), note("&lt;rows&gt;"));
        assert_eq!(wider_note(&["threads", "code", "rows"]), note("threads, code and rows"));
    }
}
