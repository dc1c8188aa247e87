package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"unsafe"
)

const clockMonotonic = 1

// worklog appends lines for one worker; worklog.py says what they are. One line is one write.
type worklog struct {
	file   *os.File
	worker string
}

func openWorklog(path string, worker string) (*worklog, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	return &worklog{file: file, worker: worker}, nil
}

func (l *worklog) note(what string, details ...string) {
	words := append([]string{fmt.Sprint(monotonic()), l.worker, what}, details...)
	for at, word := range words {
		words[at] = strings.ReplaceAll(strings.ReplaceAll(word, " ", "_"), "\n", "|")
	}
	if _, err := l.file.WriteString(strings.Join(words, " ") + "\n"); err != nil {
		fail(err)
	}
}

// begun says that a message is in the handler's hands; its payload is "key number". This implementation
// has no generations.
func (l *worklog) begun(payload []byte, sequence uint64) []string {
	key, number, _ := strings.Cut(string(payload), " ")
	about := []string{key, number, fmt.Sprint(sequence), "0"}
	l.note("begun", about...)
	return about
}

// monotonic is the nanoseconds of the machine's clock that all processes share. Go's own time has them, too,
// but does not tell.
func monotonic() int64 {
	var now syscall.Timespec
	_, _, failed := syscall.Syscall(
		syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&now)), 0)
	if failed != 0 {
		fail(failed)
	}
	return now.Nano()
}
