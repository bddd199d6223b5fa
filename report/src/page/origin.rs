//! Footer of pages: which program wrote the page, when, on which host and with which command.

use super::escape_html;
use crate::format_moment;
use std::sync::OnceLock;

/// Origin of the pages of this process.
pub struct Origin {
    /// Name and version of the program.
    pub program: String,
    /// Processor and number of CPUs.
    pub host: String,
    /// Command line without passwords.
    pub command: String,
    /// Seconds since 1970.
    pub written_at_s: i64,
}

static READ_ORIGIN: OnceLock<fn() -> Origin> = OnceLock::new();

/// Sets the function that returns the origin of all later pages. Without it, pages have no footer.
pub fn set_origin(read: fn() -> Origin) {
    let _ = READ_ORIGIN.set(read);
}

/// Returns the footer of a page; empty without an origin.
pub fn page_footer() -> String {
    READ_ORIGIN.get().map_or(String::new(), |read| read().format_footer())
}

impl Origin {
    fn format_footer(&self) -> String {
        /// Longest command on a page. Commands with long lists of files continue with an ellipsis.
        const CHARACTERS: usize = 300;
        let mut command = self.command.clone();
        if let Some((end, _)) = command.char_indices().nth(CHARACTERS) {
            command.truncate(end);
            command.push('…');
        }
        format!(
            "<footer class=\"soft\">Written by {} on {}, host: {}. Command: <code>{}</code></footer>\n",
            escape_html(&self.program),
            format_moment(self.written_at_s),
            escape_html(&self.host),
            escape_html(command.trim_end())
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Origin;

    #[test]
    fn a_footer_is_short_and_escaped() {
        let footer = |command: String| {
            let (program, host) = ("opcollect 0.1.0".to_owned(), "<cpu>, 2 CPUs".to_owned());
            Origin { program, host, command, written_at_s: 1_700_000_000 }.format_footer()
        };
        assert_eq!(
            footer("opcollect graph --html a&b.html".to_owned()),
            "<footer class=\"soft\">Written by opcollect 0.1.0 on 2023-11-14 22:13 UTC, host: &lt;cpu&gt;, 2 CPUs. \
             Command: <code>opcollect graph --html a&amp;b.html</code></footer>\n"
        );
        assert!(footer(format!("opcollect {}", "long ".repeat(100))).ends_with("long …</code></footer>\n"));
    }
}
