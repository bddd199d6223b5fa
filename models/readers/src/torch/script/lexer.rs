//! Splits TorchScript's source into tokens. Blocks are marked by their indentation, which counts only outside of brackets.

use std::iter::Peekable;
use std::str::CharIndices;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Token<'a> {
    Name(&'a str),
    Number(&'a str),
    /// The text between the quotes, with its escapes.
    Text(&'a str),
    Symbol(&'a str),
    Newline,
    Indent,
    Dedent,
    End,
}

/// A token and its line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spanned<'a> {
    pub token: Token<'a>,
    pub line: u32,
}

const SYMBOLS: [&str; 16] = ["->", "(", ")", "[", "]", "{", "}", ",", ":", ".", "=", "-", "*", "@", "+", "/"];
/// Blocks within blocks.
const MAX_INDENTS: usize = 64;

struct Lexer<'a> {
    source: &'a str,
    chars: Peekable<CharIndices<'a>>,
    tokens: Vec<Spanned<'a>>,
    indents: Vec<usize>,
    brackets: usize,
    line: u32,
}

/// Splits a source into tokens. The last token is [`Token::End`].
pub(super) fn tokens(source: &str) -> Result<Vec<Spanned<'_>>, String> {
    let chars = source.char_indices().peekable();
    let mut lexer = Lexer { source, chars, tokens: Vec::new(), indents: vec![0], brackets: 0, line: 1 };
    lexer.indentation()?;
    while let Some(&(at, sign)) = lexer.chars.peek() {
        lexer.next(at, sign).map_err(|reason| format!("line {}: {reason}", lexer.line))?;
    }
    lexer.push(Token::Newline);
    while lexer.indents.pop().is_some_and(|indent| indent > 0) {
        lexer.push(Token::Dedent);
    }
    lexer.push(Token::End);
    Ok(lexer.tokens)
}

impl<'a> Lexer<'a> {
    fn push(&mut self, token: Token<'a>) {
        self.tokens.push(Spanned { token, line: self.line });
    }

    fn next(&mut self, at: usize, sign: char) -> Result<(), String> {
        match sign {
            '\n' => self.newline(),
            ' ' | '\t' | '\r' | '\\' => {
                self.chars.next();
                Ok(())
            }
            '#' => {
                self.skip_while(|sign| sign != '\n');
                Ok(())
            }
            '"' | '\'' => self.text(at, sign),
            sign if sign.is_ascii_digit() => {
                let end = self.number(at);
                self.push(Token::Number(&self.source[at..end]));
                Ok(())
            }
            sign if sign.is_alphabetic() || sign == '_' => {
                let end = self.skip_while(|sign| sign.is_alphanumeric() || sign == '_');
                self.push(Token::Name(&self.source[at..end]));
                Ok(())
            }
            _ => self.symbol(at),
        }
    }

    /// Skips characters and returns where the rest begins.
    fn skip_while(&mut self, is_skipped: impl Fn(char) -> bool) -> usize {
        while self.chars.next_if(|&(_, sign)| is_skipped(sign)).is_some() {}
        self.chars.peek().map_or(self.source.len(), |&(at, _)| at)
    }

    /// Skips a number such as `1`, `2.`, `1.5e-05` or `3j`, and returns its end.
    fn number(&mut self, start: usize) -> usize {
        let end = self.skip_while(|sign| sign.is_ascii_alphanumeric() || sign == '.');
        let is_exponent = self.source[start..end].ends_with(['e', 'E']) && !self.source[start..end].starts_with("0x");
        match is_exponent && self.chars.next_if(|&(_, sign)| sign == '-' || sign == '+').is_some() {
            true => self.skip_while(|sign| sign.is_ascii_alphanumeric()),
            false => end,
        }
    }

    fn text(&mut self, at: usize, quote: char) -> Result<(), String> {
        self.chars.next();
        let mut is_escaped = false;
        while let Some((end, sign)) = self.chars.next() {
            match sign {
                _ if is_escaped => is_escaped = false,
                '\\' => is_escaped = true,
                '\n' => break,
                sign if sign == quote => {
                    self.push(Token::Text(&self.source[at + 1..end]));
                    return Ok(());
                }
                _ => {}
            }
        }
        Err("a text has no end".to_owned())
    }

    fn symbol(&mut self, at: usize) -> Result<(), String> {
        let rest = &self.source[at..];
        let Some(symbol) = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) else {
            let sign: String = rest.chars().take(1).flat_map(char::escape_debug).collect();
            return Err(format!("`{sign}` has no meaning"));
        };
        match *symbol {
            "(" | "[" | "{" => self.brackets += 1,
            ")" | "]" | "}" => self.brackets = self.brackets.saturating_sub(1),
            _ => {}
        }
        for _ in symbol.chars() {
            self.chars.next();
        }
        self.push(Token::Symbol(symbol));
        Ok(())
    }

    fn newline(&mut self) -> Result<(), String> {
        if self.brackets == 0 {
            self.push(Token::Newline);
        }
        self.chars.next();
        self.line += 1;
        if self.brackets == 0 { self.indentation() } else { Ok(()) }
    }

    /// Compares the indentation of a line that is not empty with the block around it.
    fn indentation(&mut self) -> Result<(), String> {
        let start = self.chars.peek().map_or(self.source.len(), |&(at, _)| at);
        let width = self.skip_while(|sign| sign == ' ') - start;
        if self.chars.peek().is_none_or(|&(_, sign)| matches!(sign, '\n' | '#' | '\r')) {
            return Ok(());
        }
        if self.indents.last().is_some_and(|&around| width > around) {
            if self.indents.len() > MAX_INDENTS {
                return Err(format!("blocks are nested deeper than {MAX_INDENTS}"));
            }
            self.indents.push(width);
            self.push(Token::Indent);
        }
        while self.indents.last().is_some_and(|&around| width < around) {
            self.indents.pop();
            self.push(Token::Dedent);
        }
        match self.indents.last() == Some(&width) {
            true => Ok(()),
            false => Err("its indentation fits no block".to_owned()),
        }
    }
}
