const unsafe = /[\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g

/** A text of foreign origin as part of a message: JSON-quoted, without control or direction characters, at most `maxLength` of its characters. */
export function quote(text: string, maxLength = 120): string {
  const short = text.length > maxLength ? `${text.slice(0, maxLength)}…` : text
  return JSON.stringify(short).replace(unsafe, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`)
}
