// A button that opens a menu of actions (the menu button pattern of ARIA).

import type { ComponentChildren } from 'preact';
import { useId, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { Icon, type IconName } from './icon';

export interface MenuItem {
  text: string;
  run: () => void;
  /** Why it can't be done; undefined where it can. */
  not?: string | undefined;
  danger?: boolean;
  /** Whether a line is drawn above it. */
  apart?: boolean;
  checked?: boolean;
}

export interface MenuProps {
  label: string;
  icon?: IconName;
  children?: ComponentChildren;
  items: MenuItem[];
  class?: string;
}

export function Menu(props: MenuProps) {
  const { items } = props;
  const [open, setOpen] = useState(false);
  const root = useRef<HTMLDivElement>(null);
  const id = useId();
  const buttons = () => [...(root.current?.querySelectorAll<HTMLElement>('[role^=menuitem]') ?? [])];
  // Before the next key, which belongs to the menu.
  useLayoutEffect(() => {
    if (!open) return;
    buttons()[0]?.focus();
    const outside = (event: Event) => {
      if (event.target instanceof Node && root.current?.contains(event.target) !== true) setOpen(false);
    };
    document.addEventListener('pointerdown', outside);
    return () => document.removeEventListener('pointerdown', outside);
  }, [open]);
  const close = () => {
    setOpen(false);
    root.current?.querySelector<HTMLElement>('[aria-haspopup]')?.focus();
  };
  const move = (by: number) => {
    const all = buttons();
    const now = all.findIndex((one) => one === document.activeElement);
    all[(now + by + all.length) % all.length]?.focus();
  };
  const pressed = (event: KeyboardEvent) => {
    if (!open) return;
    if (event.key === 'ArrowDown') move(1);
    else if (event.key === 'ArrowUp') move(-1);
    else if (event.key === 'Escape') close();
    else if (event.key === 'Tab') setOpen(false);
    else return;
    if (event.key !== 'Tab') event.preventDefault();
    event.stopPropagation();
  };
  return (
    <div class={`menu-of ${props.class ?? ''}`} ref={root} onKeyDown={pressed}>
      <button
        type="button"
        aria-haspopup="menu"
        aria-expanded={open}
        aria-controls={open ? id : undefined}
        aria-label={props.children === undefined ? props.label : undefined}
        title={props.children === undefined ? props.label : undefined}
        onClick={() => setOpen(!open)}
      >
        {props.icon !== undefined && <Icon name={props.icon} />}
        {props.children}
      </button>
      {open && (
        <ul role="menu" id={id} aria-label={props.label}>
          {items.map((one) => (
            <li key={one.text} role="none" class={one.apart === true ? 'apart' : ''}>
              <button
                type="button"
                role={one.checked === undefined ? 'menuitem' : 'menuitemcheckbox'}
                aria-checked={one.checked}
                aria-disabled={one.not !== undefined}
                class={one.danger === true ? 'danger' : ''}
                title={one.not}
                tabIndex={-1}
                onClick={() => {
                  if (one.not !== undefined) return;
                  close();
                  one.run();
                }}
              >
                {one.checked !== undefined && <span class="tick">{one.checked && <Icon name="check" />}</span>}
                {one.text}
              </button>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}
