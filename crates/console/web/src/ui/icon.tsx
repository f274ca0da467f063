// Small drawings of one stroke, in the colour of the text beside them.

const PATHS = {
  workloads: 'M8 1.5 14 5v6l-6 3.5L2 11V5zM2 5l6 3.5L14 5M8 8.5v6',
  network: 'M8 2v4M8 10v4M3 14h10M8 6a2 2 0 1 0 0 4 2 2 0 0 0 0-4M3 2h10',
  configuration: 'M2 4h6M12 4h2M2 8h2M8 8h6M2 12h7M13 12h1M10 2.5v3M6 6.5v3M11 10.5v3',
  storage:
    'M2.5 4c0-1.2 2.5-2 5.5-2s5.5.8 5.5 2v8c0 1.2-2.5 2-5.5 2s-5.5-.8-5.5-2zM2.5 4c0 1.2 2.5 2 5.5 2s5.5-.8 5.5-2M2.5 8c0 1.2 2.5 2 5.5 2s5.5-.8 5.5-2',
  access: 'M8 1.5 13.5 3.500v4c0 3.5-2.3 6-5.5 7-3.2-1-5.5-3.5-5.5-7v-4zM5.5 8l1.8 1.800L10.7 6.3',
  cluster: 'M2 2.500h12v4H2zM2 9.500h12v4H2zM4.5 4.500h.01M4.5 11.500h.01',
  custom: 'M6 2.500a1.5 1.5 0 0 1 3 0v1h3.500V7h1a1.5 1.5 0 0 1 0 3h-1v3.500H9v-1a1.5 1.5 0 0 0-3 0v1H2.500V3.500H6z',
  home: 'M2 7.5 8 2l6 5.500M3.5 6.500v7h9v-7M6.5 13.500v-4h3v4',
  search: 'M7 2.500a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9M10.5 10.5 14 14',
  star: 'm8 1.8 1.9 4 4.3.5-3.2 3 .9 4.300L8 11.500l-3.9 2.1.9-4.3-3.2-3 4.3-.5z',
  clock: 'M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2M8 4.500V8l2.5 1.5',
  plus: 'M8 3v10M3 8h10',
  check: 'm3 8.5 3.2 3.200L13 5',
  cross: 'M4 4l8 8M12 4l-8 8',
  down: 'm4 6 4 4 4-4',
  right: 'm6 4 4 4-4 4',
  more: 'M3.5 8h.01M8 8h.01M12.5 8h.01',
  copy: 'M5.5 5.500v-3h8v8h-3M2.5 5.500h8v8h-8z',
  warn: 'M8 2 14.5 13.500h-13zM8 6.500v3M8 11.600h.01',
  filter: 'M2 3.500h12M4.5 8h7M6.5 12.500h3',
  columns: 'M2 3h12v10H2zM6 3v10M10 3v10',
  chart: 'M2.5 13.500v-5M6.2 13.500v-9M9.9 13.500v-6M13.5 13.500v-11',
  server: 'M2 2.500h12v4H2zM2 9.500h12v4H2zM4.5 4.500h.01M4.5 11.500h.01M8 6.500v3',
  keys: 'M1.5 4h13v8h-13zM4 6.500h.01M6.5 6.500h.01M9 6.500h.01M11.5 6.500h.01M5 9.500h6',
  menu: 'M2 4h12M2 8h12M2 12h12',
  sun: 'M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6M8 1v1.500M8 13.500V15M1 8h1.500M13.5 8H15M3 3l1 1M12 12l1 1M13 3l-1 1M4 12l-1 1',
  moon: 'M13 9.500A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5',
  half: 'M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2M8 2v12',
  out: 'M6 2.500H2.500v11H6M10 5l3 3-3 3M13 8H6',
  user: 'M8 2a3 3 0 1 0 0 6 3 3 0 0 0 0-6M2.5 14c.5-3 2.7-4.5 5.5-4.500s5 1.5 5.5 4.5',
  live: 'M8 6.500a1.5 1.5 0 1 0 0 3 1.5 1.5 0 0 0 0-3M4.5 11.500a5 5 0 0 1 0-7M11.5 4.500a5 5 0 0 1 0 7',
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  return (
    <svg class={`icon icon-${name}`} viewBox="0 0 16 16" width={size} height={size} aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}
