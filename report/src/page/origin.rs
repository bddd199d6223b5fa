//! Footer of pages: which program wrote the page, when, on which host and with which command.

use super::escape_html;
use crate::format_moment;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// Origin of a page.
struct Origin {
    program: &'static str,
    site: Site,
    /// Seconds since 1970.
    written_at_s: i64,
}

/// Where a program runs, and with which arguments.
pub struct Site {
    /// Processor and number of CPUs.
    pub host: String,
    /// Command line without passwords.
    pub command: String,
}

type DescribeSite = fn() -> Site;

static PROGRAM: OnceLock<(&str, DescribeSite)> = OnceLock::new();

/// Sets name and version of the program that writes all later pages, and the function that describes where it runs.
/// Without it, pages have no footer.
pub fn set_program(program: &'static str, describe_site: DescribeSite) {
    let _ = PROGRAM.set((program, describe_site));
}

/// Returns the footer of a page; empty without a program.
pub fn page_footer() -> String {
    PROGRAM.get().map_or(String::new(), |(program, describe_site)| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let written_at_s = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        Origin { program, site: describe_site(), written_at_s }.format_footer()
    })
}

impl Origin {
    fn format_footer(&self) -> String {
        /// Longest command on a page. Commands with long lists of files continue with an ellipsis.
        const CHARACTERS: usize = 300;
        let mut command = self.site.command.clone();
        if let Some((end, _)) = command.char_indices().nth(CHARACTERS) {
            command.truncate(end);
            command.push('…');
        }
        format!(
            "<footer class=\"soft\">Written by {} on {}, host: {}. Command: <code>{}</code></footer>\n",
            escape_html(self.program),
            format_moment(self.written_at_s),
            escape_html(&self.site.host),
            escape_html(command.trim_end())
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{Origin, Site};

    #[test]
    fn a_footer_is_short_and_escaped() {
        let footer = |command: String| {
            let site = Site { host: "<cpu>, 2 CPUs".to_owned(), command };
            Origin { program: "opcollect 0.1.0", site, written_at_s: 1_700_000_000 }.format_footer()
        };
        assert_eq!(
            footer("opcollect graph --html a&b.html".to_owned()),
            "<footer class=\"soft\">Written by opcollect 0.1.0 on 2023-11-14 22:13 UTC, host: &lt;cpu&gt;, 2 CPUs. \
             Command: <code>opcollect graph --html a&amp;b.html</code></footer>\n"
        );
        assert!(footer(format!("opcollect {}", "long ".repeat(100))).ends_with("long …</code></footer>\n"));
    }
}
