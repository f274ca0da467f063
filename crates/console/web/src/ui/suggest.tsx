// A text field with suggestions: arrows select, Enter or Tab accepts, Escape closes (the combobox pattern of ARIA).

import { useEffect, useId, useRef, useState } from 'preact/hooks';
import { isAborted } from '../api/client';

export interface Suggestion {
  /** What the field says when it is taken. */
  value: string;
  label: string;
  detail?: string | undefined;
}

export interface SuggestProps {
  label: string;
  value: string;
  placeholder?: string;
  shortcut?: string;
  /** Clears the field when what it says has been taken. */
  clears?: boolean;
  suggestions: (text: string, signal: AbortSignal) => Promise<Suggestion[]> | Suggestion[];
  onTake: (text: string) => void;
}

const MOST_SHOWN = 12;

export function Suggest(props: SuggestProps) {
  const { value, suggestions } = props;
  const [text, setText] = useState(value);
  const [found, setFound] = useState<Suggestion[]>([]);
  const [open, setOpen] = useState(false);
  const [chosen, setChosen] = useState(-1);
  const now = useRef({ found, chosen });
  now.current = { found, chosen };
  const list = useId();
  const input = useRef<HTMLInputElement>(null);

  useEffect(() => setText(value), [value]);

  useEffect(() => {
    if (!open) return;
    const abort = new AbortController();
    const timer = setTimeout(() => {
      Promise.resolve(suggestions(text, abort.signal))
        .then((all) => {
          if (abort.signal.aborted) return;
          const next = all.slice(0, MOST_SHOWN);
          const { found: before, chosen: at } = now.current;
          // The selection remains if the new suggestions contain it.
          setChosen(next.findIndex((one) => one.value === before[at]?.value));
          setFound(next);
        })
        .catch((error: unknown) => {
          if (!isAborted(error)) setFound([]);
        });
    }, 80);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [text, open, suggestions]);

  const take = (taken: string) => {
    setOpen(false);
    setFound([]);
    setText(props.clears === true ? '' : taken);
    props.onTake(taken);
  };
  /** A suggestion that is not whole yet, such as a path without its value, goes on with the next ones. */
  const choose = (suggestion: Suggestion) => {
    if (/[=,\s(]$/.test(suggestion.value)) {
      setText(suggestion.value);
      input.current?.focus();
    } else take(suggestion.value);
  };
  const pressed = (event: KeyboardEvent) => {
    const shown = open && found.length > 0;
    const one = found[chosen];
    if (event.key === 'ArrowDown') {
      if (!open) setOpen(true);
      else setChosen(Math.min(chosen + 1, found.length - 1));
    } else if (event.key === 'ArrowUp') setChosen(Math.max(chosen - 1, -1));
    else if (event.key === 'Enter' && one !== undefined && shown) choose(one);
    else if (event.key === 'Enter') take(text.trim());
    else if (event.key === 'Tab' && shown && one !== undefined) choose(one);
    else if (event.key === 'Escape' && shown) setOpen(false);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const isShown = open && found.length > 0;
  return (
    <div class="suggest">
      <input
        ref={input}
        type="text"
        role="combobox"
        aria-label={props.label}
        aria-expanded={isShown}
        aria-controls={list}
        aria-autocomplete="list"
        aria-activedescendant={isShown && chosen >= 0 ? `${list}-${chosen}` : undefined}
        data-shortcut={props.shortcut}
        placeholder={props.placeholder}
        spellcheck={false}
        autocomplete="off"
        autocapitalize="off"
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setOpen(true);
        }}
        onFocus={() => setOpen(true)}
        onBlur={() => setOpen(false)}
        onKeyDown={pressed}
      />
      <ul id={list} role="listbox" aria-label={`${props.label}: suggestions`} hidden={!isShown}>
        {found.map((one, at) => (
          <li
            key={one.value}
            id={`${list}-${at}`}
            role="option"
            aria-selected={at === chosen}
            onMouseDown={(event) => {
              event.preventDefault();
              choose(one);
            }}
          >
            <span>{one.label}</span>
            {one.detail !== undefined && <small>{one.detail}</small>}
          </li>
        ))}
      </ul>
    </div>
  );
}
