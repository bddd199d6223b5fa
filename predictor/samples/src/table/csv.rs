//! Reads CSV by column, on all cores: the file is cut at line ends, and each piece is parsed separately.
//!
//! A column is numeric until a cell is not a number; then its earlier cells are parsed again as words. Quoted cells may
//! contain separators but no line ends. The size of decompressed `.gz` files is limited, also by the compression ratio.

use super::{Cells, Table, TableColumn};
use crate::error::{Error, Result};
use rayon::prelude::*;
use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

pub const MAX_BYTES: u64 = 16 << 30;
/// Maximum decompressed bytes per compressed byte, in addition to `ALWAYS_UNPACKED`; public tables compress less.
const MOST_UNPACKED: u64 = 60;
const ALWAYS_UNPACKED: u64 = 64 << 20;
const MAX_COLUMNS: usize = 4096;
/// Minimum size of a piece; a smaller piece is not worth a thread.
const PIECE_BYTES: usize = 1 << 20;

pub fn read_csv(path: &Path) -> Result<Table> {
    let bytes = read_contents(path)?;
    parse_csv(&bytes).map_err(|problem| Error::table_error(path, problem))
}

fn read_contents(path: &Path) -> Result<Vec<u8>> {
    let file = std::fs::File::open(path).map_err(|error| Error::io_error("open", path, error))?;
    let is_packed = path.extension().is_some_and(|extension| extension == "gz");
    let length = file.metadata().map_err(|error| Error::io_error("read the size of", path, error))?.len();
    let most = match is_packed {
        true => length.saturating_mul(MOST_UNPACKED).saturating_add(ALWAYS_UNPACKED).min(MAX_BYTES),
        false => MAX_BYTES,
    };
    let mut bytes = Vec::new();
    let source: Box<dyn Read> = if is_packed {
        Box::new(flate2::read::MultiGzDecoder::new(std::io::BufReader::new(file)))
    } else {
        bytes.reserve_exact(length.min(MAX_BYTES) as usize + 1);
        Box::new(file)
    };
    source.take(most + 1).read_to_end(&mut bytes).map_err(|error| Error::io_error("read", path, error))?;
    match bytes.len() as u64 > most {
        true if most < MAX_BYTES => {
            let mib = ALWAYS_UNPACKED >> 20;
            let limit = format!("{MOST_UNPACKED} times its size and {mib} MiB");
            Err(Error::table_error(
                path,
                format!("the file decompresses to more than {limit}; decompress it first if you trust its source"),
            ))
        }
        true => Err(Error::table_error(
            path,
            format!("the table has more than {MAX_BYTES} bytes; split it into several files"),
        )),
        false => Ok(bytes),
    }
}

fn parse_csv(bytes: &[u8]) -> std::result::Result<Table, String> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let (header, body) = split_line(bytes);
    let names = header_names(header)?;
    let pieces = split_pieces(body);
    let parsed = pieces.par_iter().map(|piece| parse_piece(piece, names.len())).collect();
    join_pieces(names, parsed)
}

fn header_names(header: &[u8]) -> std::result::Result<Vec<String>, String> {
    let mut names: Vec<String> = Vec::new();
    let mut cells = CellsOfLine { rest: Some(header) };
    while let Some(cell) = cells.next_cell().map_err(|problem| format!("line 1: {problem}"))? {
        let name = std::str::from_utf8(cell.bytes).map_err(|_| "line 1: the header is not UTF-8")?;
        let name = cell.unquote_text(name).trim().to_owned();
        if name.is_empty() {
            return Err(format!("line 1: column {} has no name", names.len() + 1));
        }
        if names.contains(&name) {
            return Err(format!("line 1: duplicate column `{name}`"));
        }
        if names.len() == MAX_COLUMNS {
            return Err(format!("line 1: there are more than {MAX_COLUMNS} columns"));
        }
        names.push(name);
    }
    Ok(names)
}

fn split_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    let (line, rest) = match memchr::memchr(b'\n', bytes) {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (bytes, &bytes[bytes.len()..]),
    };
    (line.strip_suffix(b"\r").unwrap_or(line), rest)
}

/// Splits a file at line ends into at most one piece per core.
fn split_pieces(body: &[u8]) -> Vec<&[u8]> {
    let cores = rayon::current_num_threads();
    let wanted = (body.len() / PIECE_BYTES).clamp(1, cores);
    let mut pieces = Vec::new();
    let mut rest = body;
    for left in (1..=wanted).rev() {
        let aim = rest.len() / left;
        let end = if left == 1 {
            rest.len()
        } else {
            memchr::memchr(b'\n', &rest[aim..]).map_or(rest.len(), |end| aim + end + 1)
        };
        let (piece, after) = rest.split_at(end);
        pieces.push(piece);
        rest = after;
    }
    pieces
}

struct Cell<'a> {
    bytes: &'a [u8],
    /// Whether the cell was quoted and contains doubled quotes, each of which stands for a single quote.
    has_quotes: bool,
}

impl Cell<'_> {
    fn unquote_text(&self, text: &str) -> String {
        if self.has_quotes { text.replace("\"\"", "\"") } else { text.to_owned() }
    }
}

struct CellsOfLine<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> CellsOfLine<'a> {
    /// Consumes the next cell if it is a plain decimal number, the most frequent case.
    #[inline]
    fn plain_number(&mut self) -> Option<f64> {
        let rest = self.rest?;
        let (number, length) = plain_number(rest)?;
        self.rest = rest.get(length + 1..);
        Some(number)
    }

    #[inline]
    fn next_cell(&mut self) -> std::result::Result<Option<Cell<'a>>, String> {
        let Some(rest) = self.rest else { return Ok(None) };
        if rest.first() == Some(&b'"') {
            return self.quoted_cell(&rest[1..]).map(Some);
        }
        // Cells are short, so a plain loop is faster than a vectorised search.
        let end = rest.iter().position(|byte| *byte == b',');
        self.rest = end.map(|end| &rest[end + 1..]);
        Ok(Some(Cell { bytes: &rest[..end.unwrap_or(rest.len())], has_quotes: false }))
    }

    fn quoted_cell(&mut self, inside: &'a [u8]) -> std::result::Result<Cell<'a>, String> {
        let mut has_quotes = false;
        let mut from = 0;
        loop {
            let Some(quote) = memchr::memchr(b'"', &inside[from..]).map(|at| at + from) else {
                return Err(
                    "a quoted cell does not end on its line; line ends inside cells are not supported".to_owned()
                );
            };
            match inside.get(quote + 1) {
                Some(b'"') => {
                    has_quotes = true;
                    from = quote + 2;
                }
                Some(b',') => {
                    self.rest = Some(&inside[quote + 2..]);
                    return Ok(Cell { bytes: &inside[..quote], has_quotes });
                }
                None => {
                    self.rest = None;
                    return Ok(Cell { bytes: &inside[..quote], has_quotes });
                }
                Some(_) => return Err("a quoted cell has text after its closing quote".to_owned()),
            }
        }
    }
}

struct Piece<'a> {
    text: &'a [u8],
    columns: Vec<GrowingColumn>,
    rows: usize,
    problem: Option<String>,
}

enum GrowingColumn {
    Numbers(Vec<f64>),
    Words(Words),
}

#[derive(Default)]
struct Words {
    words: Vec<String>,
    codes: Vec<u32>,
    places: HashMap<String, u32>,
}

impl Words {
    fn append_word(&mut self, word: &str) -> std::result::Result<(), String> {
        // Neighbouring rows often have the same text.
        if let Some(last) = self.codes.last().copied().filter(|last| self.words[*last as usize] == word) {
            self.codes.push(last);
            return Ok(());
        }
        let code = match self.places.get(word) {
            Some(code) => *code,
            None => {
                let code = u32::try_from(self.words.len()).map_err(|_| "too many different texts")?;
                self.places.insert(word.to_owned(), code);
                self.words.push(word.to_owned());
                code
            }
        };
        self.codes.push(code);
        Ok(())
    }
}

fn parse_piece(piece: &[u8], width: usize) -> Piece<'_> {
    // Estimates the number of rows from the length of the first line.
    let lines = (piece.len() / (split_line(piece).0.len() + 1)).min(piece.len() / (2 * width).max(1));
    let numbers = || GrowingColumn::Numbers(Vec::with_capacity(lines + lines / 8));
    let mut parsed = Piece { text: piece, columns: (0..width).map(|_| numbers()).collect(), rows: 0, problem: None };
    let mut rest = piece;
    while !rest.is_empty() {
        let (line, after) = split_line(rest);
        rest = after;
        if line.is_empty() {
            continue;
        }
        if let Err(problem) = parse_line(line, &mut parsed) {
            parsed.problem = Some(problem);
            break;
        }
        parsed.rows += 1;
    }
    parsed
}

fn parse_line(line: &[u8], parsed: &mut Piece<'_>) -> std::result::Result<(), String> {
    let mut cells = CellsOfLine { rest: Some(line) };
    let width = parsed.columns.len();
    for index in 0..width {
        if let GrowingColumn::Numbers(numbers) = &mut parsed.columns[index]
            && let Some(number) = cells.plain_number()
        {
            numbers.push(number);
            continue;
        }
        let Some(cell) = cells.next_cell()? else {
            return Err(format!("the row has {index} cells, but the header has {width}"));
        };
        let column = &mut parsed.columns[index];
        if let GrowingColumn::Numbers(numbers) = column {
            if let Some(number) = parse_cell(cell.bytes) {
                numbers.push(number);
                continue;
            }
            *column = GrowingColumn::Words(words_again(parsed.text, index, parsed.rows)?);
        }
        if let GrowingColumn::Words(words) = column {
            push_word(words, &cell)?;
        }
    }
    match cells.rest {
        None => Ok(()),
        Some(_) => Err(format!("the row has more cells than the header, which has {width} cells")),
    }
}

fn push_word(words: &mut Words, cell: &Cell<'_>) -> std::result::Result<(), String> {
    let text = std::str::from_utf8(cell.bytes).map_err(|_| "a cell is not UTF-8")?;
    if cell.has_quotes { words.append_word(&cell.unquote_text(text)) } else { words.append_word(text) }
}

const POWERS: [f64; 19] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18];

/// Parses a plain decimal up to a comma or line end, with its length; None for other notations or too many digits.
#[inline]
fn plain_number(line: &[u8]) -> Option<(f64, usize)> {
    let is_negative = line.first() == Some(&b'-');
    let first = usize::from(is_negative);
    let mut value = 0u64;
    let whole = accumulate_digits(line, first, &mut value);
    let mut end = first + whole;
    let mut fraction = 0;
    if line.get(end) == Some(&b'.') {
        fraction = accumulate_digits(line, end + 1, &mut value);
        end += 1 + fraction;
    }
    let is_exact = (1..POWERS.len()).contains(&(whole + fraction)) && value <= 1 << 53;
    let is_whole_cell = line.get(end).is_none_or(|next| *next == b',');
    let number = value as f64 / POWERS.get(fraction)?;
    (is_exact && is_whole_cell).then_some((if is_negative { -number } else { number }, end))
}

/// Appends decimal digits to a number, wrapping on overflow, and returns the number of digits.
#[inline]
fn accumulate_digits(line: &[u8], from: usize, value: &mut u64) -> usize {
    let digits =
        line[from.min(line.len())..].iter().map(|byte| byte.wrapping_sub(b'0')).take_while(|digit| *digit < 10);
    digits.fold(0, |count, digit| {
        *value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
        count + 1
    })
}

/// Parses a number; returns NaN for an empty cell and None for text.
#[inline]
fn parse_cell(bytes: &[u8]) -> Option<f64> {
    if bytes.is_empty() {
        return Some(f64::NAN);
    }
    // Words such as `infinity`, which Rust would parse as numbers.
    if !matches!(bytes[0], b'0'..=b'9' | b'-' | b'+' | b'.') {
        return match bytes {
            b"NaN" | b"nan" | b"NA" => Some(f64::NAN),
            b"inf" | b"Inf" => Some(f64::INFINITY),
            _ => None,
        };
    }
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

fn words_again(piece: &[u8], index: usize, rows: usize) -> std::result::Result<Words, String> {
    let mut words = Words::default();
    let mut rest = piece;
    while words.codes.len() < rows {
        let (line, after) = split_line(rest);
        rest = after;
        if line.is_empty() {
            continue;
        }
        let mut cells = CellsOfLine { rest: Some(line) };
        for _ in 0..index {
            cells.next_cell()?;
        }
        if let Some(cell) = cells.next_cell()? {
            push_word(&mut words, &cell)?;
        }
    }
    Ok(words)
}

fn join_pieces(names: Vec<String>, pieces: Vec<Piece>) -> std::result::Result<Table, String> {
    let mut rows = 0;
    for piece in &pieces {
        rows += piece.rows;
        if let Some(problem) = &piece.problem {
            // Empty lines are not counted, so the number may be a little low.
            return Err(format!("row {} after the header: {problem}", rows + 1));
        }
    }
    let mut sources: Vec<_> =
        pieces.into_iter().map(|piece| (piece.text, piece.rows, piece.columns.into_iter())).collect();
    let columns = names.into_iter().enumerate().map(|(index, name)| {
        let parts: Vec<_> =
            sources.iter_mut().filter_map(|(text, rows, columns)| Some((*text, *rows, columns.next()?))).collect();
        let cells = match parts.iter().all(|(_, _, part)| matches!(part, GrowingColumn::Numbers(_))) {
            true => Cells::Numbers(join_numbers(parts.into_iter().map(|(_, _, part)| part), rows)),
            false => join_words(parts, index)?,
        };
        Ok(TableColumn { name, cells })
    });
    Ok(Table { columns: columns.collect::<std::result::Result<_, String>>()?, rows })
}

fn join_numbers(parts: impl Iterator<Item = GrowingColumn>, rows: usize) -> Vec<f64> {
    let mut all = Vec::new();
    for part in parts {
        if let GrowingColumn::Numbers(numbers) = part {
            if all.is_empty() {
                all = numbers;
                all.reserve_exact(rows - all.len());
            } else {
                all.extend_from_slice(&numbers);
            }
        }
    }
    all
}

/// Joins a column of words. Pieces in which all cells are numbers are parsed again.
fn join_words(parts: Vec<(&[u8], usize, GrowingColumn)>, index: usize) -> std::result::Result<Cells, String> {
    let mut all = Words::default();
    for (text, rows, part) in parts {
        let part = match part {
            GrowingColumn::Words(part) => part,
            GrowingColumn::Numbers(_) => words_again(text, index, rows)?,
        };
        let mut map = Vec::with_capacity(part.words.len());
        for word in part.words {
            let next = all.words.len() as u32;
            let code = *all.places.entry(word.clone()).or_insert(next);
            if code == next {
                all.words.push(word);
            }
            map.push(code);
        }
        all.codes.extend(part.codes.iter().map(|code| map[*code as usize]));
    }
    Ok(Cells::Words { words: all.words, codes: all.codes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(table: &Table, name: &str) -> Vec<String> {
        match &table.find_column(name).expect("the column").cells {
            Cells::Words { words, codes } => codes.iter().map(|code| words[*code as usize].clone()).collect(),
            Cells::Numbers(numbers) => numbers.iter().map(f64::to_string).collect(),
        }
    }

    #[test]
    fn columns_are_numbers_until_a_text_says_otherwise() {
        let table = parse_csv(b"a,b,c\r\n1,2,x\r\n,two,\"y, \"\"z\"\"\"\r\n1e-3,3,\r\n").expect("a table");
        assert_eq!(table.rows, 3);
        let Cells::Numbers(a) = &table.find_column("a").expect("a").cells else { panic!("{table:?}") };
        assert!(a[0] == 1.0 && a[1].is_nan() && a[2] == 0.001);
        assert_eq!(words(&table, "b"), ["2", "two", "3"]);
        assert_eq!(words(&table, "c"), ["x", "y, \"z\"", ""]);
    }

    #[test]
    fn words_are_spelled_as_in_the_file_in_every_piece() {
        let mut text = "layout,time\n".to_owned();
        text.push_str(&"1.50,1\n".repeat(PIECE_BYTES / 2));
        text.push_str("x,1\n1.50,1\n");
        let table = parse_csv(text.as_bytes()).expect("a table");
        let Cells::Words { words, .. } = &table.find_column("layout").expect("the column").cells else { panic!() };
        assert_eq!(words, &["1.50", "x"]);
    }

    #[test]
    fn refusals_say_what_and_where() {
        for (text, expected) in [
            ("a,a\n", "line 1: duplicate column `a`"),
            ("a,\n", "line 1: column 2 has no name"),
            ("a,b\n1,2\n3\n", "row 2 after the header: the row has 1 cells, but the header has 2"),
            ("a,b\n1,2,3\n", "row 1 after the header: the row has more cells than the header, which has 2 cells"),
            (
                "a\n\"x\n",
                "row 1 after the header: a quoted cell does not end on its line; line ends inside cells are not supported",
            ),
        ] {
            assert_eq!(parse_csv(text.as_bytes()).expect_err(text), expected);
        }
    }

    proptest! {
        #[test]
        fn plain_numbers_are_the_nearest(text in "-?[0-9]{0,20}(\\.[0-9]{0,12})?(e3)?,?") {
            if let Some((number, length)) = plain_number(text.as_bytes()) {
                let cell = text.trim_end_matches(',');
                prop_assert_eq!(length, cell.len());
                prop_assert_eq!(number.to_bits(), cell.parse::<f64>().expect("a number").to_bits());
            }
        }

        #[test]
        fn pieces_and_the_crate_csv_agree(rows in prop::collection::vec(("[a-z0-9,\" ]{0,6}", -1e9f64..1e9), 1..60)) {
            let mut writer = csv::Writer::from_writer(Vec::new());
            writer.write_record(["word", "number"]).expect("memory");
            for (word, number) in &rows {
                writer.write_record([word, &number.to_string()]).expect("memory");
            }
            let bytes = writer.into_inner().expect("memory");
            let table = parse_csv(&bytes).expect("a table");
            let Cells::Numbers(numbers) = &table.find_column("number").expect("the column").cells else { panic!("{table:?}") };
            prop_assert_eq!(numbers, &rows.iter().map(|(_, number)| *number).collect::<Vec<_>>());
            if rows.iter().any(|(word, _)| parse_cell(word.as_bytes()).is_none()) {
                prop_assert_eq!(words(&table, "word"), rows.iter().map(|(word, _)| word.clone()).collect::<Vec<_>>());
            }
        }

        #[test]
        fn never_panics(bytes in prop::collection::vec(prop::sample::select(b"a1,\"\n\r.-\xff".to_vec()), 0..80)) {
            let _ = parse_csv(&bytes);
        }
    }
}
