//! Splits TorchScript's source into tokens. Indentation delimits blocks; inside brackets it has no meaning.

use std::iter::Peekable;
use std::str::CharIndices;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Token<'a> {
    Name(&'a str),
    Number(&'a str),
    Text(&'a str),
    Symbol(&'a str),
    Newline,
    Indent,
    Dedent,
    End,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Spanned<'a> {
    pub token: Token<'a>,
    pub line: u32,
}

const SYMBOLS: [&str; 16] = ["->", "(", ")", "[", "]", "{", "}", ",", ":", ".", "=", "-", "*", "@", "+", "/"];
const MAX_INDENTS: usize = 64;

struct Lexer<'a> {
    source: &'a str,
    chars: Peekable<CharIndices<'a>>,
    tokens: Vec<Spanned<'a>>,
    indents: Vec<usize>,
    brackets: usize,
    line: u32,
}

/// Splits the source into tokens; the last one is [`Token::End`].
pub(super) fn split_tokens(source: &str) -> Result<Vec<Spanned<'_>>, String> {
    let chars = source.char_indices().peekable();
    let mut lexer = Lexer { source, chars, tokens: Vec::new(), indents: vec![0], brackets: 0, line: 1 };
    lexer.lex_indentation()?;
    while let Some(&(at, sign)) = lexer.chars.peek() {
        lexer.next_token(at, sign).map_err(|reason| format!("line {}: {reason}", lexer.line))?;
    }
    lexer.push_token(Token::Newline);
    while lexer.indents.pop().is_some_and(|indent| indent > 0) {
        lexer.push_token(Token::Dedent);
    }
    lexer.push_token(Token::End);
    Ok(lexer.tokens)
}

impl<'a> Lexer<'a> {
    fn push_token(&mut self, token: Token<'a>) {
        self.tokens.push(Spanned { token, line: self.line });
    }

    fn next_token(&mut self, at: usize, sign: char) -> Result<(), String> {
        match sign {
            '\n' => self.lex_newline(),
            ' ' | '\t' | '\r' | '\\' => {
                self.chars.next();
                Ok(())
            }
            '#' => {
                self.skip_while(|sign| sign != '\n');
                Ok(())
            }
            '"' | '\'' => self.lex_text(at, sign),
            sign if sign.is_ascii_digit() => {
                let end = self.skip_number(at);
                self.push_token(Token::Number(&self.source[at..end]));
                Ok(())
            }
            sign if sign.is_alphabetic() || sign == '_' => {
                let end = self.skip_while(|sign| sign.is_alphanumeric() || sign == '_');
                self.push_token(Token::Name(&self.source[at..end]));
                Ok(())
            }
            _ => self.lex_symbol(at),
        }
    }

    fn skip_while(&mut self, is_skipped: impl Fn(char) -> bool) -> usize {
        while self.chars.next_if(|&(_, sign)| is_skipped(sign)).is_some() {}
        self.chars.peek().map_or(self.source.len(), |&(at, _)| at)
    }

    /// Skips a number such as `1`, `2.`, `1.5e-05` or `3j`; returns the position after it.
    fn skip_number(&mut self, start: usize) -> usize {
        let end = self.skip_while(|sign| sign.is_ascii_alphanumeric() || sign == '.');
        let is_exponent = self.source[start..end].ends_with(['e', 'E']) && !self.source[start..end].starts_with("0x");
        match is_exponent && self.chars.next_if(|&(_, sign)| sign == '-' || sign == '+').is_some() {
            true => self.skip_while(|sign| sign.is_ascii_alphanumeric()),
            false => end,
        }
    }

    fn lex_text(&mut self, at: usize, quote: char) -> Result<(), String> {
        self.chars.next();
        let mut is_escaped = false;
        while let Some((end, sign)) = self.chars.next() {
            match sign {
                _ if is_escaped => is_escaped = false,
                '\\' => is_escaped = true,
                '\n' => break,
                sign if sign == quote => {
                    self.push_token(Token::Text(&self.source[at + 1..end]));
                    return Ok(());
                }
                _ => {}
            }
        }
        Err("a string literal is not terminated".to_owned())
    }

    fn lex_symbol(&mut self, at: usize) -> Result<(), String> {
        let rest = &self.source[at..];
        let Some(symbol) = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) else {
            let sign: String = rest.chars().take(1).flat_map(char::escape_debug).collect();
            return Err(format!("unexpected character `{sign}`"));
        };
        match *symbol {
            "(" | "[" | "{" => self.brackets += 1,
            ")" | "]" | "}" => self.brackets = self.brackets.saturating_sub(1),
            _ => {}
        }
        for _ in symbol.chars() {
            self.chars.next();
        }
        self.push_token(Token::Symbol(symbol));
        Ok(())
    }

    fn lex_newline(&mut self) -> Result<(), String> {
        if self.brackets == 0 {
            self.push_token(Token::Newline);
        }
        self.chars.next();
        self.line += 1;
        if self.brackets == 0 { self.lex_indentation() } else { Ok(()) }
    }

    /// Emits tokens for the start or the end of a block, by the indentation of a non-empty line.
    fn lex_indentation(&mut self) -> Result<(), String> {
        let start = self.chars.peek().map_or(self.source.len(), |&(at, _)| at);
        let width = self.skip_while(|sign| sign == ' ') - start;
        if self.chars.peek().is_none_or(|&(_, sign)| matches!(sign, '\n' | '#' | '\r')) {
            return Ok(());
        }
        if self.indents.last().is_some_and(|&around| width > around) {
            if self.indents.len() > MAX_INDENTS {
                return Err(format!("blocks are nested deeper than {MAX_INDENTS} levels"));
            }
            self.indents.push(width);
            self.push_token(Token::Indent);
        }
        while self.indents.last().is_some_and(|&around| width < around) {
            self.indents.pop();
            self.push_token(Token::Dedent);
        }
        match self.indents.last() == Some(&width) {
            true => Ok(()),
            false => Err("the indentation does not match any block".to_owned()),
        }
    }
}
